"""Write the files of ``tune-calib reproduce``: tables, verdicts on claims, a page."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product
from operator import attrgetter
from typing import Any, get_args

import pandas as pd

from analysis.compare.claims import Outcome, judge
from analysis.compare.network_check import compute_network_check, name_of
from analysis.ladder.tables import describe_setting, equal_rungs
from analysis.load import Run, cached_per_run, load
from analysis.page.page import PAGE as REPORT
from analysis.page.page import Page, Section
from analysis.reproduction import tables
from analysis.reproduction.quantities import with_quantities
from analysis.reproduction.tables import VerdictRow
from analysis.shifts import FAMILIES, FOREIGN_MEAN, OOD, foreign_sets
from analysis.tables.latex import label_of, latex
from analysis.tables.render import in_files, markdown
from analysis.tables.table import Table
from analysis.text import full_stops
from analysis.tidy import complaints, parted
from tune_calib.console import Part, Text, printable
from tune_calib.files.paths import AnyPath, atomic_write
from tune_calib.results.folders import read_lock
from tune_calib.spec.reproduction import Claim, Reproduction
from tune_calib.text import format_count

PAGE = "reproduction.html"


def _can_judge(claim: Claim, run: Run) -> bool:
    split = parted(claim.metric)[1] or ""
    family = split.partition("/")[0]
    families = FAMILIES.keys() & {name.partition("/")[0] for name in run.splits}
    # A data set is no OOD set of itself; corruptions are published or, without files, generated.
    is_other = family in FAMILIES and bool(families) and family not in families
    sets = foreign_sets(run.splits)
    is_other |= family == OOD and split != FOREIGN_MEAN and bool(sets) and split not in sets
    return split != f"{OOD}/{run.manifest.dataset}" and not is_other


@dataclass(frozen=True)
class Made:
    """The results of a table."""

    table: Reproduction
    runs: Sequence[tuple[str, Run]]  # with the name of the run in the table
    command: str  # that repeats the runs
    lock: Mapping[str, Any] = field(default_factory=dict)  # with the plan, and seeds at first looks

    @cached_property
    def verdict_rows(self) -> list[VerdictRow]:
        """Return the verdicts on each claim: for each base network, and for a mean over them."""
        rows: list[VerdictRow] = []
        for claim, entry in product(self.table.claims, self.table.entries):
            if claim.run in (None, entry):
                rows += self._judge(claim, entry)
        return rows

    def _judge(self, claim: Claim, entry: str) -> list[VerdictRow]:
        runs = [run for name, run in self.runs if name == entry and _can_judge(claim, run)]
        # By data set, if it is about networks; the frozen networks of a data set form one group.
        groups_by_dataset = defaultdict[str, dict[str, list[Run]]](dict)
        for run in runs:
            dataset = run.manifest.dataset
            key = dataset if has_frozen_networks(run) else f"/{run.out.name}"
            groups = groups_by_dataset[dataset if claim.over == "networks" else ""]
            groups.setdefault(key, []).append(run)
        rows: list[VerdictRow] = []
        for dataset, groups in groups_by_dataset.items():
            is_mean = claim.over != "each" and len(groups) > 1
            if is_mean:
                where = f"mean of {len(groups)} data sets and networks"
                if dataset:
                    where = f"{dataset} mean of {len(groups)} networks"
                rows.append(self._judge_on(list(groups.values()), claim, entry, where))
            for group in groups.values():
                where = name_of(group[0])
                if len(group) > 1:
                    where = f"{group[0].manifest.dataset} {len(group)} frozen networks"
                rows.append(replace(self._judge_on([group], claim, entry, where), is_part=is_mean))
        return rows

    def _judge_on(
        self, groups: Sequence[Sequence[Run]], claim: Claim, entry: str, where: str
    ) -> VerdictRow:
        runs, looks = list(chain.from_iterable(groups)), self.lock.get("looks", {})
        late = [run.manifest.blocks - looks.get(run.out.name, math.inf) for run in runs]
        return VerdictRow(
            entry if len(groups) > 1 else " ".join(run.out.name for run in runs),
            where,
            judge(groups, claim),
            is_elsewhere=claim.network not in (None, where),
            is_reduced=any(uses_part_of_train(group[0]) for group in groups),
            printed=tables.describe_print(self.table, entry, runs[0].rungs, claim),
            late=int(max(0, *late)),
            misfits_views=any(_misfits_views(run, claim) for run in runs),
        )


def _misfits_views(run: Run, claim: Claim) -> bool:
    labels = set[str]()
    for comparison in claim.comparisons:
        labels.update({comparison.rung, *comparison.than, *(comparison.less or ())})
    rows = run.trials[run.trials["rung"].map(run.labels).isin(labels)]
    return bool(rows["head_method"].notna().any()) and not compute_network_check(run).fits_views


def has_frozen_networks(run: Run) -> bool:
    networks = list(map(json.loads, run.trials["network"].dropna().unique()))
    is_frozen = all(network.get("weights") and network["epochs"] == 0 for network in networks)
    return bool(networks) and is_frozen


@cached_per_run
def uses_part_of_train(run: Run) -> bool:
    slots = map(json.loads, run.trials["data"].dropna().unique())
    return any(data.get("train_fraction", 1.0) < 1 for data in slots)


def read_made(table: Reproduction, out: AnyPath, entries: Mapping[str, str], command: str) -> Made:
    """Read the results of a table; ``entries`` names the run of each folder in ``out``."""
    comparisons = chain.from_iterable(claim.comparisons for claim in table.claims)
    metrics = [*table.metrics, *map(attrgetter("metric"), comparisons)]
    runs = []
    for folder, entry in entries.items():
        run = with_quantities(load(out / folder), metrics)
        if len(run.trials):
            runs.append((entry, run))
    return Made(table, runs, command, lock=read_lock(out))


def write_reproduction(
    table: Reproduction, out: AnyPath, entries: Mapping[str, str], command: str
) -> Text:
    made = read_made(table, out, entries, command)
    frames, run_tables, checks, troubles = [], [], [], list[str]()
    for entry, run in made.runs:
        troubles += [f"{run.out.name}: {line}" for line in complaints(run)]
        check, label = compute_network_check(run).sentence, label_of(table.folder, run.out.name)
        checks.append(f"{name_of(run)}: {check}.")
        frame, comparison = _compare_with_print(table, entry, run, check, label)
        frames.append(frame)
        run_tables.append(comparison)
    frame = pd.concat(frames) if frames else pd.DataFrame(columns=tables.COLUMNS)
    contents = {
        "table.md": "\n\n\n".join(map(markdown, run_tables)) + "\n\n",
        "table.tex": f"{latex(*run_tables)}\n",
        "table.csv": frame.to_csv(index=False),
    }
    claims = tables.claims_table(table.folder, made.verdict_rows, tables.describe_plan(made.lock))
    numbers = map(attrgetter(*tables.NUMBERS.values()), made.verdict_rows)
    contents |= in_files(claims, pd.DataFrame(numbers, columns=list(tables.NUMBERS)))
    sections = [
        Section("claims", "Claims", tables=[replace(claims, key="claim-rows")]),
        Section("table", "Table", checks, run_tables),
    ]
    title, lead = f"{table.name}: {table.title}", _describe_verdicts(made.verdict_rows)
    names = [run.out.name for _, run in made.runs]
    pages = {name: f"{name}/{REPORT}" for name in names if (out / name / REPORT).exists()}
    contents[PAGE] = Page(
        title=title,
        lead=lead,
        setting=f"{len(names)} ladders and comparisons",
        network_check="",
        state=f"{'Not every' if troubles else 'Complete: every'} trial has its numbers.",
        troubles=troubles,
        sections=sections,
        steps={"Run it again; finished trials are skipped.": command},
        files=[*contents, *pages.values()],
        links=pages,
    ).render()
    for name, text in contents.items():
        atomic_write(out / name, printable(text).encode())
    printed: list[Part] = [replace(claims, caption="")] if claims.records else []
    return Text([title, *printed, *checks, f"page: {out / PAGE}"])


def _compare_with_print(
    table: Reproduction, entry: str, run: Run, check: str, label: str
) -> tuple[pd.DataFrame, Table]:
    """Compare a run with the printed table: the values as a frame, and as a table to show."""
    frame = tables.compare_with_print(table, entry, run)
    caption = f"{table.title}. {describe_setting(run)}. "
    caption += "Mean ± standard deviation over trials, on test."
    if frame["difference"].notna().any():
        caption += " Δ: ours minus the paper's."
    if source := tables.paper_of(frame):
        caption += f" {source}."
    notes = full_stops([*filter(None, [table.note, equal_rungs(run), check])])
    comparison, key = tables.printed_table(frame), f"table-{run.out.name}"
    return frame, replace(comparison, key=key, caption=caption, label=label, notes=notes)


def _describe_verdicts(rows: Sequence[VerdictRow]) -> str:
    counts = Counter(row.verdict.outcome for row in rows if row.is_counted)
    outcomes = [f"{counts[outcome]} {outcome}" for outcome in get_args(Outcome) if counts[outcome]]
    if not outcomes:
        return ""
    total = format_count(counts.total(), "verdict")
    return f"Of {total} on claims of the paper: {', '.join(outcomes)}."
