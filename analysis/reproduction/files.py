"""Write the files of ``tune-calib reproduce``: tables, verdicts on claims, a page."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import pandas as pd

from analysis.compare.claims import Outcome, judge
from analysis.compare.network_check import compute_network_check, name_of
from analysis.figure import LADDER_FIGURES
from analysis.ladder.results import LadderResults
from analysis.ladder.tables import describe_setting, equal_rungs
from analysis.load import Sweep, cached_per_sweep, load
from analysis.page.figures import picture_of
from analysis.page.page import Page, Section, environment
from analysis.reproduction.quantities import with_quantities
from analysis.reproduction.tables import (
    COLUMNS,
    Judged,
    claim_numbers,
    claims_table,
    compare_with_print,
    describe_print,
    paper_of,
    printed_table,
    title_of,
)
from analysis.shifts import FAMILIES, FOREIGN_MEAN, OOD, foreign_sets
from analysis.tables.latex import label_of, latex
from analysis.tables.render import in_files, markdown
from analysis.tables.table import Table
from analysis.text import full_stops, minus
from analysis.tidy import complaints, parted
from tune_calib.console import Part, Text, printable
from tune_calib.paths import AnyPath, atomic_write
from tune_calib.spec.reproduction import Claim, Reproduction

PAGE = "reproduction.html"


def _can_judge(claim: Claim, sweep: Sweep) -> bool:
    """Return whether the shift set of a claim, if any, applies to the data set of a run."""
    split = parted(claim.metric)[1] or ""
    family = split.partition("/")[0]
    families = {str(name).partition("/")[0] for name in sweep.trials} & FAMILIES.keys()
    # A data set is no OOD set of itself; corruptions are published or, without files, generated.
    is_other = family in FAMILIES and bool(families) and family not in families
    sets = foreign_sets(str(name).rpartition("/")[0] for name in sweep.trials)
    is_other |= family == OOD and split != FOREIGN_MEAN and bool(sets) and split not in sets
    return split != f"{OOD}/{sweep.manifest.dataset}" and not is_other


@dataclass(frozen=True)
class Made:
    """The results of a table."""

    table: Reproduction
    sweeps: Sequence[tuple[str, Sweep]]  # with the name of the run in the table
    command: str  # that repeats the runs

    @cached_property
    def judged(self) -> list[Judged]:
        """Return the verdicts on each claim: for each base network, and for a mean over them."""
        # The frozen networks of a data set form one group.
        of_runs: dict[str, dict[str, list[Sweep]]] = {}
        for run, sweep in self.sweeps:
            key = sweep.manifest.dataset if has_frozen_networks(sweep) else f"/{sweep.out.name}"
            of_runs.setdefault(run, {}).setdefault(key, []).append(sweep)
        found = []
        for claim in self.table.claims:
            for run in [claim.run] if claim.run else self.table.entries:
                groups = [own for own in of_runs.get(run, {}).values() if _can_judge(claim, own[0])]
                if not groups:
                    continue
                printed = describe_print(self.table, run, groups[0][0].rungs, claim)
                sets: dict[str, list[list[Sweep]]] = {}
                for sweeps in groups:
                    key = sweeps[0].manifest.dataset if claim.over == "networks" else ""
                    sets.setdefault(key, []).append(sweeps)
                for dataset, parts in sets.items():
                    found += _judge_parts(claim, run, dataset, parts, printed)
        return found


def _judge_parts(
    claim: Claim, run: str, dataset: str, parts: Sequence[Sequence[Sweep]], printed: str
) -> list[Judged]:
    """Judge a claim on the mean over base networks, if it is about one, and on each of them."""
    is_mean = claim.over != "each" and len(parts) > 1
    found = []
    if is_mean:
        of = f"{dataset} mean of {len(parts)}" if dataset else f"mean of {len(parts)} data sets and"
        is_reduced = any(uses_part_of_train(sweeps[0]) for sweeps in parts)
        found = [Judged(run, f"{of} networks", judge(parts, claim), is_reduced, False, printed)]
    for sweeps in parts:
        folder = " ".join(sweep.out.name for sweep in sweeps)
        where = f"{sweeps[0].manifest.dataset} {len(sweeps)} frozen networks"
        where = name_of(sweeps[0]) if len(sweeps) == 1 else where
        is_reduced, verdict = uses_part_of_train(sweeps[0]), judge([sweeps], claim)
        found.append(Judged(folder, where, verdict, is_reduced, is_mean, printed))
    return found


def has_frozen_networks(sweep: Sweep) -> bool:
    """Return whether a sweep uses only frozen networks."""
    networks = [json.loads(text) for text in sweep.trials["network"].dropna().unique()]
    return bool(networks) and all(own.get("weights") and own["epochs"] == 0 for own in networks)


@cached_per_sweep
def uses_part_of_train(sweep: Sweep) -> bool:
    """Return whether networks were trained on a part of the training images."""
    data = [json.loads(text) for text in sweep.trials["data"].dropna().unique()]
    return any(own.get("train_fraction", 1.0) < 1 for own in data)


def read_made(table: Reproduction, out: AnyPath, runs: Mapping[str, str], command: str) -> Made:
    """Read the results of a table; ``runs`` names the run of each folder in ``out``."""
    compared = (one for claim in table.claims for one in claim.comparisons)
    named = [*table.metrics, *(one.metric for one in compared)]
    loaded = [(run, with_quantities(load(out / folder), named)) for folder, run in runs.items()]
    return Made(table, [(run, sweep) for run, sweep in loaded if len(sweep.trials)], command)


def write_reproduction(
    table: Reproduction, out: AnyPath, runs: Mapping[str, str], command: str
) -> Text:
    """Write the tables, verdicts and page of a reproduced table, and return the text to print."""
    made = read_made(table, out, runs, command)
    frames = {s.out.name: compare_with_print(table, run, s) for run, s in made.sweeps}
    tables = [_table(table, s, frames[s.out.name]) for _, s in made.sweeps]
    frame = pd.concat(frames.values()) if frames else pd.DataFrame(columns=COLUMNS)
    contents = {
        "table.md": "\n\n\n".join(map(markdown, tables)) + "\n\n",
        "table.tex": f"{latex(*tables)}\n",
        "table.csv": frame.to_csv(index=False),
    }
    claims = claims_table(table.folder, made.judged)
    contents |= in_files(claims, claim_numbers(made.judged))
    contents[PAGE] = _page(made, tables, [*contents, "lock.json"])
    for name, text in contents.items():
        atomic_write(out / name, printable(text).encode())
    regimes = [f"{name_of(s)}: {compute_network_check(s).sentence}." for _, s in made.sweeps]
    printed: list[Part] = [replace(claims, caption="")] if claims.records else []
    return Text([f"{table.name}: {table.title}", *printed, *regimes, f"page: {out / PAGE}"])


def _table(table: Reproduction, sweep: Sweep, frame: pd.DataFrame) -> Table:
    parts = [
        f"{table.title}. {describe_setting(sweep)}.",
        "Mean ± standard deviation over trials, on test.",
        *(["Δ: ours minus the paper's."] if frame["difference"].notna().any() else []),
        *([f"{of}."] if (of := paper_of(frame)) else []),
    ]
    label = label_of(table.folder, sweep.out.name)
    own = printed_table(f"table-{sweep.out.name}", " ".join(parts), frame, label)
    notes = filter(None, [table.note, equal_rungs(sweep), compute_network_check(sweep).sentence])
    return replace(own, notes=full_stops([*notes]))


def _page(made: Made, tables: Sequence[Table], files: Sequence[str]) -> str:
    sweeps = [sweep for _, sweep in made.sweeps]
    claims = replace(claims_table("", made.judged), key="claim-rows")
    troubles = [f"{s.out.name}: {line}" for s in sweeps for line in complaints(s)]
    trials = pd.concat([s.trials for s in sweeps]) if sweeps else pd.DataFrame()
    pictures = []  # from the reports of the runs, if they were drawn
    for sweep in sweeps:
        results, name, folder = LadderResults(sweep), sweep.out.name, sweep.out / "figures"
        for figure in (LADDER_FIGURES[own] for own in made.table.figures):
            if (folder / f"{figure.name}.svg").exists():
                of_page, key = f"{name}/figures", f"{figure.name}-{name}"
                picture = picture_of(figure, results, folder, of_page, key)
                pictures.append(replace(picture, title=f"{picture.title}: {name_of(sweep)}"))
    return Page(
        title=f"{made.table.name}: {made.table.title}",
        lead=describe_verdicts(made.judged, sweeps),
        setting=made.table.note.rstrip(".") or "Our results next to the published ones",
        details="; ".join(f"{name_of(s)}: {s.manifest.setting}" for s in sweeps),
        regime="; ".join(f"{name_of(s)}: {compute_network_check(s).sentence}" for s in sweeps),
        state="Not every trial has numbers." if troubles else "Complete: all trials are done.",
        troubles=troubles,
        sections=[
            Section("claims", "Claims", tables=[claims]),
            Section("figures", "Figures", figures=pictures),
            # The header shows the notes.
            Section("table", "Table", tables=[replace(own, notes=()) for own in tables]),
            Section("environment", "Environment", tables=[environment(trials)]),
        ],
        steps={"Repeat all runs; finished trials are skipped.": made.command},
        files=files,
        links={s.out.name: f"{s.out.name}/report.html" for s in sweeps},
    ).render()


def describe_verdicts(verdicts: Sequence[Judged], sweeps: Sequence[Sweep]) -> str:
    """Return the lead of the page of a table, a sentence on the verdicts; empty without claims."""
    counted = [one for one in verdicts if not one.is_part]
    if not counted:
        return ""
    counts = Counter(one.verdict.outcome for one in counted)
    outcomes = ", ".join(f"{counts[each]} {each}" for each in get_args(Outcome) if counts[each])
    verdict = "verdict" if len(counted) == 1 else "verdicts"
    text = f"Of {len(counted)} {verdict} on claims: {outcomes}"
    decided = [one for one in counted if one.verdict.outcome in ("held", "not held")]
    if decided:
        own = max(decided, key=lambda one: abs(one.verdict.difference) / one.verdict.width)
        (row,) = claims_table("", [own]).records
        title = title_of(own.verdict.claim)
        text += f"; most clearly {own.verdict.outcome} on {own.where}: “{title}” ("
        text += f"{row['compared'].text}: {minus(row['difference'].text)}, "
        text += f"95 % interval {minus(row['95 %'].text)})"
    if len(sweeps) == 1:
        return f"{text}; {compute_network_check(sweeps[0]).brief}."
    over = sum(compute_network_check(sweep).is_over_confident for sweep in sweeps)
    return f"{text}; over-confident base networks: {over} of {len(sweeps)}."
