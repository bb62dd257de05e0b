"""The tables of a ladder or comparison, and a warning of heads trained too briefly."""

import json
import re
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis.compare.intervals import noise_floors
from analysis.compare.network_check import compute_network_check, known_networks
from analysis.ladder import means
from analysis.ladder.shift_tables import OOD_SHOWN
from analysis.load import Run, cached_per_run
from analysis.page.page import describe_programs
from analysis.published import titled
from analysis.shifts import FAMILIES
from analysis.tables.latex import label_of
from analysis.tables.table import BEST, MAX_ROWS, Table
from analysis.text import NOTHING, Cell, Record, format_counts, full_stops, ranked, records_of
from analysis.tidy import SEEDS, by_rung, planned_trials, settings, tied
from tune_calib.results.tables import is_metric_column
from tune_calib.spec.metrics import AT_VALUE, BASE, METRICS, column, format_number, format_value
from tune_calib.spec.names import HEAD_BELOW, STATUSES, is_never_best, legend
from tune_calib.spec.slots.base import Slot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.text import format_count

_PAPER = "paper: "  # before the head of a column of published numbers
_FLOOR = "Noise floor (%)"  # a column on request
_STEP = "ΔECE before"  # what a rung of a ladder is about
_FIRST = ("ece", "accuracy", "nll", "brier")  # shown first on a narrow screen
_GAIN = "NLL gain (%)"  # the share of ``means.nll_gains``
_HIDDEN_SPLITS = ("select", "train", BASE)  # used for selection and for the network check


@cached_per_run
def ladder(run: Run) -> Table:
    manifest = run.manifest
    keys: list[Any] = means.published_columns(run).columns.to_list()
    papers = {_PAPER + titled(key): key for key in keys}
    records = _records(run, papers)
    if run.row_name == "method":
        # Sorted by the primary metric; methods that may not win are last.
        metric = METRICS[[*run.shown, "ece"][0]]
        values = pd.Series([record[metric.head].value for record in records], dtype=float)
        frame = pd.DataFrame({"is_empty": values.isna()})
        frame["is_never_best"] = [is_never_best(run.flags(rung.index)) for rung in run.rungs]
        frame["loss"] = values * {"min": 1, "max": -1, None: 0}[metric.direction]
        order = frame.sort_values(list(map(str, frame)), kind="stable").index
        records = [records[position] for position in order]
    floors = [record.pop(_FLOOR) for record in records]
    groups = {}
    if papers:
        groups = {head: ("this run", head) for head in list(records[0])[1:]}
        for head in papers:
            groups[head] = ("published ECE (%)", head.removeprefix(_PAPER))
    # A rule before the first control, and before variants after a step.
    rules = {}
    for index, (previous, rung) in enumerate(pairwise(run.rungs), start=1):
        is_first_control = rung.kind == "control" and previous.kind != "control"
        if is_first_control or (rung.kind == "variant" and previous.kind == "step"):
            rules[index] = f"{rung.kind}s"
    first = [METRICS[name].head for name in run.shown or _FIRST]
    first.insert(len(run.shown) or 1, _STEP)  # behind requested metrics, otherwise behind ECE
    first.append(_GAIN)
    # A step of a ladder is compared with the step of the paper, and a method with the base.
    if run.row_name == "rung":
        first += [*papers, base_head(run)]
    else:
        first += [base_head(run), *papers]
    return Table(
        "ladder",
        f"{manifest.title}. {describe_setting(run)}.\nTest split, {means.mean_over(run)}. {BEST}",
        records,
        rules=rules,
        first=[*first, "trials"],
        groups=groups,
        label=label_of(manifest.ladder.split()[0], manifest.dataset),
        is_main=True,
        notes=[f"{compute_network_check(run).sentence}.", *notes(run)],
        is_one_tabular=True,
        on_request={_FLOOR: floors},
    )


def describe_setting(run: Run) -> str:
    """Shorten the setting to data, network and recipe, e.g. ``Digits; Small CNN, 60 epochs``."""
    manifest = run.manifest
    backbones = tuple(map(str, run.trials["backbone"].dropna().unique()))
    parts = []
    for part in manifest.setting.split("; "):
        name, *others = re.split(r"(?=\W)", part, maxsplit=1)
        if name in ("heads", "one"):
            continue
        if part.startswith(backbones):
            # Without optimiser and the like, and without the hash of its weights.
            others = ["".join(others).partition(": ")[0].partition(" (weights ")[0]]
        elif name == "recipe" and manifest.recipe and manifest.recipe.told:
            others = [f" {manifest.recipe.told}"]
        elif name == "imported":
            title = manifest.titles.get(name)
            name = "imported data" if title in (None, "Imported") else f"imported {title}"
            others = [re.sub(r"^ \w+", "", "".join(others))]  # without its digest
        parts.append("".join([manifest.titles.get(name, name), *others]))
    return "; ".join(parts)


def notes(run: Run) -> list[str]:
    manifest, counts = run.manifest, run.counts()
    lines = []
    ended = dict(counts)
    missing = ended.pop("missing", 0)
    if set(counts) != {"done"}:
        lines.append(
            f"Trials of all {run.row_name}s: {format_counts(ended)}; means are over those done, "
            f"and changes over the seeds of both {run.row_name}s"
        )
    if missing:
        lines.append(f"INCOMPLETE: {missing} of {len(manifest.planned)} trials missing")
    lines += describe_programs(run.trials)
    lines += legend(run.flags())
    if run.row_name == "rung":
        lines.append(f"{_STEP}: change of the mean ECE from the previous rung, in points")
    base = run.base_note or run.bases[run.rungs[0].index].label
    if len({base.label for base in run.bases.values()}) > 1:
        base = "the last base above it"
    if _shows_gain(run):
        lines.append(
            f"{_GAIN}: reduction of the mean NLL from {base}, in % of the calibration part of its "
            "NLL, which the best temperature would remove (Berta et al., 2025); a dash where that "
            "part is 0"
        )
    lines.append(f"{base_head(run)}: change of the mean ECE from {base}, in points")
    lines += filter(None, [equal_rungs(run)])
    floors = noise_floors(run).dropna()
    if len(floors):
        ends = (format_number(floor, 100, 2) for floor in (floors.min(), floors.max()))
        span = " to ".join(dict.fromkeys(ends))
        lines.append(
            f"{_FLOOR}: {span}, the expected ECE of calibrated classifiers with these confidences "
            "and samples; no ECE below it is marked"
        )
    if run.shows_intervals:
        lines.append(means.interval_note(run))
    if manifest.published:
        lines.append(f"Columns 'paper': ECE (%) as printed in {manifest.published}")
    return full_stops(lines)


@cached_per_run
def equal_rungs(run: Run) -> str:
    """Name the rungs whose trials have equal test metrics for every seed; empty if none."""
    columns = [column("test", metric) for metric in METRICS]
    groups: list[tuple[pd.DataFrame, list[str]]] = []
    for rung in run.rungs:
        rows = run.of_rung(rung.index).set_index([*SEEDS]).sort_index()
        rows = rows.reindex(columns=columns).astype(float)
        if rows.isna().all(axis=None):
            continue
        for first, labels in groups:
            # Some metrics may be absent.
            if rows.index.equals(first.index) and not tied(rows - first).any(axis=None):
                labels.append(run.label(rung))
                break
        else:
            groups.append((rows, [run.label(rung)]))
    equations = "; ".join(" = ".join(labels) for _, labels in groups if len(labels) > 1)
    if not equations:
        return ""
    differ = f"{len(groups)} of {sum(len(labels) for _, labels in groups)} {run.row_name}s differ"
    return f"Equal in every trial: {equations}, so {differ}"


def base_head(run: Run) -> str:
    """Return the head of the column of changes from the base, which a comparison may lack."""
    return "ΔECE first" if run.base_note else "ΔECE base"


def _records(run: Run, papers: Mapping[str, Any]) -> list[Record]:
    """Return a row per rung; rungs that may not win have no mark."""
    metrics = run.shown or means.usual_metrics(run.trials)
    table = means.ladder_table(run, (*metrics, "ece")).drop_duplicates(["metric", "rung"])
    rows_of = dict(list(table.groupby("metric")))
    columns, floors = {run.row_name: list(map(Cell, map(run.label, run.rungs)))}, noise_floors(run)
    for metric in metrics:
        cells, rows_of_metric = [], list[Any](rows_of[metric].itertuples())
        for row in rows_of_metric:
            if not row.n:  # says why there is no number
                cells.append(Cell(run.failures(row.rung) or NOTHING.text))
            elif run.shows_intervals:
                cells.append(means.interval_cell(run, row.rung, metric, row.mean))
            else:
                cells.append(Cell.number(metric, row.mean, row.sd))
        columns[METRICS[metric].head] = ranked(cells, METRICS[metric], means.may_win(run, metric))
    if run.shows_network_check:
        columns |= _network_columns(run)
    if _shows_gain(run):
        columns[_GAIN] = [Cell.formatted(100 * gain, ".0f") for gain in means.nll_gains(run)]
    change_cell = partial(Cell.number, "ece", signed=True)
    if run.row_name == "rung":  # a method of a comparison builds on no other
        columns[_STEP] = list(map(change_cell, rows_of["ece"]["change_before"]))
    columns[base_head(run)] = list(map(change_cell, rows_of["ece"]["change_base"]))
    columns["trials"] = list(map(Cell.ended, map(run.counts, run.labels)))
    columns[_FLOOR] = list(map(partial(Cell.number, "ece"), floors))
    printed = means.published_columns(run)
    for head, key in papers.items():
        values = printed[key].reindex(list(run.labels.values()))
        columns[head] = [Cell.number("ece", value) for value in values]
    return records_of(columns)


def _shows_gain(run: Run) -> bool:
    return not run.shown or "nll" in run.shown


def _network_columns(run: Run) -> dict[str, list[Cell]]:
    accuracies, gaps = [], []
    for rung in run.rungs:
        trials = run.of_rung(rung.index)
        accuracies.append(Cell.number("accuracy", known_networks(trials)["train"].mean()))
        gap = trials.reindex(columns=["test/confidence_gap"])["test/confidence_gap"].astype(float)
        gaps.append(Cell.number("confidence_gap", gap.mean(), gap.std(ddof=1), signed=True))
    return {"Network on train (%)": accuracies, METRICS["confidence_gap"].head: gaps}


def plan(run: Run) -> Table:
    records = []
    for rung in run.rungs:
        counts = run.counts(rung.index)
        ended = {name: Cell.of(counts.get(name, 0)) for name in (*STATUSES, "missing")}
        cells = {"kind": Cell.of(rung.kind), "description": Cell.of(rung.ingredient)}
        cells["planned"] = Cell.of(sum(counts.values()))
        records.append({run.row_name: Cell(run.label(rung)), **cells, **ended})
    return Table("planned", f"Planned trials of each {run.row_name} by status.", records)


def _seeds(run: Run, row: "pd.Series[Any]", label: str = "method") -> Record:
    cells = {"network seed": Cell.of(row["network_seed"]), "head seed": Cell.of(row["head_seed"])}
    if run.manifest.split_seeds:
        cells["split seed"] = Cell.of(row["split_seed"])
    return {run.row_name: Cell(row[label]), **cells}


def unfinished(run: Run) -> Table:
    rows = planned_trials(run)
    bad = rows[rows["status"] != "done"]
    records = []
    for _, row in bad.head(MAX_ROWS).iterrows():
        reason = Cell(row["note"] or "no result on disk")
        cells = {"status": Cell(row["status"]), "reason": reason, "spec": Cell(row["spec_hash"])}
        records.append(_seeds(run, row) | cells)
    note = "Planned trials without results; means do not include them."
    return Table("unfinished", note, records, chosen_by=(run.row_name, "status"), total=len(bad))


def trials(run: Run) -> Table:
    rows = planned_trials(run)
    order = (*means.usual_metrics(rows), *OOD_SHOWN)
    names = []
    for name in filter(is_metric_column, map(str, rows)):
        split, _, metric = name.rpartition("/")
        # There are dozens of single corruptions; the shift tables show their means.
        is_hidden = split.startswith(_HIDDEN_SPLITS) or split.split("/")[0] in FAMILIES
        if metric in order and not is_hidden:
            names.append((split, metric))
    names.sort(key=lambda part: (part[0] != "test", part[0], order.index(part[1])))
    records = []
    for _, row in rows.head(MAX_ROWS).iterrows():
        cells = {**_seeds(run, row), "status": Cell(row["status"]), "flags": Cell(row["flags"])}
        for split, metric in names:
            head = f"{split}: {METRICS[metric].head}".removeprefix("test: ")
            cells[head] = Cell.number(metric, row[column(split, metric)])
        cells["time (s)"] = Cell.measured(float(row["wall_s"]))
        records.append({**cells, "spec": Cell(row["spec_hash"])})
    if all(record["flags"].is_blank for record in records):
        for record in records:
            del record["flags"]
    note = "One row per planned trial; the time includes all trials that ran together with it."
    note = " ".join([note, *full_stops(legend(rows["flags"]))])
    return Table("trial-rows", note, records, chosen_by=(run.row_name, "status"), total=len(rows))


def drawn_intervals(run: Run) -> Table:
    if run.intervals.empty:  # a look-up takes a millisecond per cell
        return Table("drawn-intervals", "", [])
    columns = {run.row_name: list(map(Cell, map(run.label, run.rungs)))}
    for metric, rows in means.ladder_table(run).groupby("metric", sort=False):
        numbers = zip(rows["rung"], rows["mean"], strict=True)
        cells = [means.interval_cell(run, rung, str(metric), mean) for rung, mean in numbers]
        columns[METRICS[str(metric)].head] = cells
    records = records_of(columns)
    with_any = [row for row in records if any("[" in cell.text for cell in [*row.values()][1:])]
    return Table("drawn-intervals", f"{means.interval_note(run)}.", with_any)


def intervals(run: Run, rows: pd.DataFrame) -> Table:
    records = []
    for _, row in rows.head(MAX_ROWS).iterrows():
        cells = _seeds(run, row, "rung")
        for metric in ("accuracy", "ece"):
            head = METRICS[metric].head
            cells[head] = Cell.number(metric, row[metric])
            cells[f"{head}, 95 %"] = Cell.span(metric, row[f"{metric}_low"], row[f"{metric}_high"])
        records.append(cells)
    note = (
        "95 % intervals over the test samples, for a fixed trained network. They come from the "
        "bootstrap if a trial has it, else from its bins: Wilson's interval for accuracy, and for "
        "ECE the inversion of a test that subtracts the bias due to chance (a calibrated network "
        f"has an ECE above 0), widened to include the ECE shown. {AT_VALUE}."
    )
    return Table("interval-rows", note, records, chosen_by=(run.row_name,), total=len(rows))


@cached_per_run
def rung_settings(run: Run) -> Table:
    records: Any = by_rung(run.trials, run.labels).map(Cell.of).to_dict("records")
    note = "Every setting but the seeds, in the form that --set accepts (slot.key=value)."
    return Table("values", note, records)


_SLOTS: dict[str, type[Slot]] = {"network": NetworkSlot, "head": HeadSlot}
# Not part of a recipe: the rung's label and the table of settings have them.
_NO_RECIPE = ("plugin", "method", "params", "seed", "backbone")
_HEADS = {
    "optimizer": "optimiser",
    "milestones": "lr drops at epoch",
    "batch_size": "batch",
    "loss_reduction": "loss",
    "clip_grad_norm": "clip",
    "select": "epoch kept",
}
_WEAK = {"optimizer": "optimiser", "lr": "lr", "batch_size": "batch", "epochs": "epochs"}


def recipes(run: Run) -> Table:
    keys = list({**NetworkSlot.model_fields, **HeadSlot.model_fields})
    rows = []
    for slot in _SLOTS:
        for rung, recipe in _recipes_of(run, slot).items():
            cells = {key: recipe.get(key, NOTHING) for key in keys}
            rows.append({"slot": slot, "rung": run.labels[rung], **cells})
    frame = pd.DataFrame(rows, columns=["slot", "rung", *keys])
    varies = frame.groupby("slot")[keys].nunique() > 1
    shown, differ = varies.index[varies.any(axis="columns")], varies.any()
    if not differ["optimizer"] and frame["optimizer"].nunique() > 1:
        # Rungs with and without a head were trained by two optimisers.
        shown = varies.index
        differ |= (frame[keys].nunique() > 1) & ~frame[keys].isin([NOTHING]).any()
    records = []
    frame = frame[frame["slot"].isin(shown)]
    for _, group in frame.groupby(["slot", *keys], sort=False):
        record = {"trained": Cell(group["slot"].iloc[0])}
        for key in differ.index[differ]:
            record[_HEADS.get(key, key.replace("_", " "))] = group[key].iloc[0]
        records.append(record | {"rungs": Cell(", ".join(group["rung"]))})
    label = label_of("recipes", run.manifest.ladder.split()[0], run.manifest.dataset)
    caption = f"Training recipes that differ between {run.row_name}s:"
    return Table("recipes", caption, records, first=["rungs"], label=label)


def weak_heads(run: Run) -> list[str]:
    recipes, accuracy = _recipes_of(run, "head"), column("test", "accuracy")
    lines = []
    for rung in run.rungs:
        rows = run.of_rung(rung.index)
        is_below = rows["flags"].str.split(",").map(lambda names: HEAD_BELOW in names).astype(bool)
        below = rows[is_below].reindex(columns=[accuracy, f"{BASE}/{accuracy}"]).dropna()
        if below.empty:
            continue
        mean, base = (format_value("accuracy", value) for value in below.mean())
        recipe = recipes.get(rung.index, {})
        trained = [f"{head} {recipe[key].text}" for key, head in _WEAK.items() if key in recipe]
        lines.append(
            f"{rung.label}: {len(below)} of {format_count(len(rows), 'head')} far less accurate on "
            f"test than the network ({mean} compared with {base}); trained with "
            f"{', '.join(trained)}, perhaps too briefly for a comparison of calibration"
        )
    return lines


@cached_per_run
def _recipes_of(run: Run, slot: str) -> dict[int, Record]:
    keys = [key for key in _SLOTS[slot].model_fields if key not in _NO_RECIPE]
    # The trials of a rung differ only in their seeds and share a recipe.
    trials = run.trials.drop_duplicates("rung").set_index("rung")
    frame = settings(trials).reindex(columns=[f"{slot}.{key}" for key in keys])
    frame.columns = pd.Index(keys)
    rows: Any = frame[frame["epochs"].notna()].to_dict("index")
    recipes = {}
    for rung, row in rows.items():
        recipe = {}
        for key, value in row.items():
            cell = Cell.of(value)
            if isinstance(value, float):
                cell = Cell(f"{value:g}", value)
            elif isinstance(value, bool | str):
                cell = Cell({True: "yes", False: "no", "null": "none"}.get(value, str(value)))
            if not pd.isna(value):
                recipe[key] = cell
        if isinstance(shares := row.get("milestones"), str):
            drops = [round(share * row["epochs"]) for share in json.loads(shares)]
            epoch = float(drops[0]) if len(drops) == 1 else None
            recipe["milestones"] = Cell(", ".join(map(str, drops)) or "never", epoch)
        recipes[int(rung)] = recipe
    return recipes
