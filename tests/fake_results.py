"""A run folder with invented numbers, for tests of the analysis alone."""

import itertools
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tune_calib.results.manifests import (
    CommandRecord,
    Importance,
    ObjectiveRecord,
    PlannedRecord,
    RungRecord,
    RunManifest,
    SearchManifest,
    SearchOutcome,
    SearchRequestRecord,
    SeedsRecord,
    SuggestionRecord,
)
from tune_calib.results.tables import read_table, write_file, write_results, write_table
from tune_calib.spec.metrics import CORRUPTION_METRICS, OOD_METRICS

LABELS = ("vanilla", "+ one", "+ two", "control")
KINDS = ("base", "step", "step", "control")
_MADE = tempfile.TemporaryDirectory(prefix="tune-calib-fakes-")


def made_once(write: Callable[..., None]) -> Callable[..., None]:
    """Let a function write a folder once for each of its options, and copy it from then on."""
    made: dict[str, Path] = {}

    @wraps(write)
    def copy(out: Path, *options: object, **named: object) -> None:
        key = repr((options, sorted(named.items())))
        if key not in made:
            made[key] = Path(tempfile.mkdtemp(dir=_MADE.name))
            write(made[key], *options, **named)
        # Not with the times of the files: these are new.
        shutil.copytree(made[key], out, copy_function=shutil.copyfile, dirs_exist_ok=True)

    return copy


@made_once
def write(
    out: Path,
    seeds: int = 3,
    published: bool = True,
    bad: str | None = None,
    bad_rungs: tuple[int, ...] = (2,),
    kinds: tuple[str, ...] = KINDS,
    flags: Mapping[int, str] | None = None,
) -> None:
    """Write a run of three rungs and a control; ``bad`` is the status of all of ``bad_rungs``."""
    names = ("Vanilla", "+Masked Retraining", "+Gradient Restriction", None)
    rungs = [
        RungRecord(
            index=i,
            label=label,
            ingredient=label,
            published=names[i] if published else None,
            kind=kinds[i],
        )
        for i, label in enumerate(LABELS)
    ]
    planned = [
        PlannedRecord(spec_hash=f"{i}-{s}", rung=i, network_seed=s, head_seed=s if i else None)
        for i in (rung.index for rung in rungs)
        for s in range(seeds)
    ]
    RunManifest(
        version=1,
        sweep="fake",
        ladder="mac_cal",
        title="Invented",
        command="tune-calib ablate mac_cal",
        dataset="digits",
        setting="invented numbers",
        published="maccal/table5" if published else None,
        rungs=rungs,
        network_seeds=list(range(seeds)),
        head_seeds=list(range(seeds)),
        paired_seeds=True,
        planned=planned,
    ).write(out)
    for trial in planned:
        _write_trial(out, trial, "done" if bad is None or trial.rung not in bad_rungs else bad)
        if flags is not None:
            name, is_first = f"{trial.spec_hash}.parquet", trial.network_seed == 0
            add_flags(out / "trials" / name, flags.get(trial.rung, "") if is_first else "")


def add_shifts(out: Path, names: Iterable[str], left_out: str = "") -> None:
    """Let every trial of a run of ``write`` have been looked at on some shift sets."""
    rows = []
    hashes = read_table(out, "trials")["spec_hash"].to_pylist()
    for spec_hash, name in itertools.product(hashes, names):
        is_foreign = name.startswith("ood/")
        parts = [name] if is_foreign else [f"{name}/{severity}" for severity in range(1, 6)]
        for part, metric in itertools.product(
            parts, OOD_METRICS if is_foreign else CORRUPTION_METRICS
        ):
            if spec_hash != hashes[0] or part != left_out:
                fields = {"spec_hash": spec_hash, "set": part, "metric": metric}
                rows.append({**fields, "value": shifted_value(spec_hash, part)})
    write_table(out, "shifts", "-".join(names).replace("/", "-")[:60], pa.Table.from_pylist(rows))


def add_intervals(out: Path, metrics: Iterable[str], resamples: int = 1000, but: int = 0) -> None:
    """Let the done trials of a run, but some, have intervals .1 (of accuracy .2) to both sides."""
    rows = []
    table = read_table(out, "trials").to_pylist()
    done = [row for row in table if row["status"] == "done"]
    for row, metric in itertools.product(done[but:], metrics):
        value, half = row[f"test/{metric}"], 0.2 if metric == "accuracy" else 0.1
        ends = {"lower": value - half, "upper": value + half, "se": half / 2}
        fields = {"spec_hash": row["spec_hash"], "split": "test", "metric": metric}
        rows.append({**fields, **ends, "resamples": resamples, "draws": None})
    write_table(out, "intervals", f"drawn-{resamples}", pa.Table.from_pylist(rows))


def shifted_value(spec_hash: str, part: str) -> float:
    """An invented value of a trial on a part of a shift set, in [0, 1)."""
    return zlib.crc32(f"{spec_hash}{part}".encode()) / 2**32


def with_manifest(loaded, **changes):
    """A run or search that was loaded, whose manifest says something else."""
    return replace(loaded, manifest=loaded.manifest.model_copy(update=changes))


def add_flags(path: Path, cell: str) -> None:
    """Give every row of a file of trials the same flags."""
    set_cells(path, {"flags": cell})


def add_network_check(
    out: Path, gap: float = 0.05, se: float = 0.004, only_heads: bool = False, method: str = "ce"
) -> None:
    """Give every row what is known of its network, one of each seed, whose gaps are .002 apart."""
    for path in sorted((out / "trials").glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            (row,) = file.read().to_pylist()
        seed, is_head = row["network_seed"], row["head"] is not None
        cells = {"network_id": f"network {seed}", "network_method": method}
        cells |= {"head_method": "mac_cal"} if is_head else {}
        if is_head or not only_heads:
            prefix = "base/" if is_head else ""
            cells |= {f"{prefix}train/accuracy": 0.99 + 0.001 * seed}
            cells |= {f"{prefix}test/confidence_gap": gap + 0.002 * (seed - 1)}
            cells |= {f"{prefix}test/confidence_gap_se": se}
            # Its own, which says nothing of the network it stands on.
            cells |= {"test/confidence_gap": -0.3} if is_head else {}
        set_cells(path, cells)


def set_cells(path: Path, cells: Mapping[str, object]) -> None:
    """Give every row of a file of trials the same cells."""
    key = path.read_bytes(), path.stem, repr(cells)
    if key in _after:
        path.write_bytes(_after[key])
        return
    with pq.ParquetFile(path) as file:
        table = file.read()
    for name, cell in cells.items():
        place, column = table.schema.get_field_index(name), [cell] * table.num_rows
        if place < 0:
            table = table.append_column(name, pa.array(column))
        else:
            table = table.set_column(place, table.schema.field(place), pa.array(column))
    write_file(path.parents[1], path.stem, "trials", table)
    _after[key] = path.read_bytes()


_after: dict[tuple[bytes, str, str], bytes] = {}
"""Files that were given cells: many tests do so with the same few."""


def value(rung: int, seed: int) -> float:
    """The invented ECE of a trial."""
    return 0.10 - 0.02 * rung + 0.01 * seed


def _write_trial(out: Path, planned: PlannedRecord, status: str) -> None:
    rung, seed = planned.rung, planned.network_seed
    head = {"method": "mac_cal", "params": {"gamma": 0.1 * rung}}
    row = {
        "schema_version": 1,
        "spec_hash": planned.spec_hash,
        "rung": rung,
        "rung_label": LABELS[rung],
        "network_seed": seed,
        "head_seed": planned.head_seed,
        "data": '{"dataset":"digits","label_noise":0.2,"train_fraction":1.0}',
        "dataset": "digits",
        "backbone": "small_cnn",
        "head": json.dumps(head) if rung else None,
        "status": status,
        "message": None if status == "done" else "the loss is not finite",
    }
    if status == "done":
        ece = value(rung, seed)
        metrics = {"accuracy": 0.9 - 0.01 * rung, "ece": ece, "aece": ece, "mce": 0.5, "nll": 0.4}
        metrics |= {"o_ece": ece, "u_ece": 0.0, "brier": 0.3}
        row |= {f"test/{name}": number for name, number in metrics.items()}
    curves = [
        {"spec_hash": planned.spec_hash, "epoch": e, "name": name, "value": 0.5 + 0.01 * e}
        for e in (1, 2, 3)
        for name in ("q", "tau", "train/accuracy", "train/confidence")
        if rung == 2
    ]
    edges = np.linspace(0, 1, 16)
    bins = [
        {
            "spec_hash": planned.spec_hash,
            "split": "test",
            "bin": b,
            "lower": edges[b],
            "upper": edges[b + 1],
            "count": 10 * (b > 5) * (seed + 1),
            "confidence": (edges[b] + edges[b + 1]) / 2,
            "accuracy": edges[b],
        }
        for b in range(15)
    ]
    tables = {"trials": [row], "curves": curves, "bins": bins if status == "done" else []}
    write_results(out, planned.spec_hash, tables)


SPACE = {
    "head.shape": {"kind": "categorical", "choices": ["linear", "bottleneck"], "only_if": {}},
    "head.width": {
        "kind": "categorical",
        "choices": [None, 64],
        "only_if": {"head.shape": ["bottleneck"]},
    },
    "head.lr": {"kind": "float", "low": 1e-4, "high": 0.1, "log": True, "only_if": {}},
}
DEFAULTS = {"head.shape": "bottleneck", "head.width": None, "head.lr": 0.01}


def write_search(
    out: Path,
    points: list[dict],
    eces: list[float | None],
    statuses: list[str] | None = None,
    seeds: int = 2,
    planned: int | None = None,
    metrics: tuple[str, ...] = ("ece",),
    importance: dict[str, float] | None = None,
) -> None:
    """Write a search that has ended; the accuracy of a suggestion is 0.9 - ECE / 2."""
    statuses, planned = statuses or ["done"] * len(points), planned or len(points)
    suggestions = _suggestions(points, eces, statuses, seeds)
    within = [suggestion.number for suggestion in suggestions if suggestion.is_within]
    SearchOutcome(
        version=1,
        asked=planned,
        planned=planned,
        metrics=list(metrics),
        baseline={"ece": 0.08, "accuracy": 0.85},
        settings=SPACE,
        defaults=DEFAULTS,
        published=[{**DEFAULTS, "head.lr": 0.1}, {**DEFAULTS, "head.width": 64}],
        suggestions=suggestions,
        front=within[:1],
        chosen=min(within, key=lambda number: eces[number]) if within else None,
        importance=Importance(
            done=statuses.count("done"),
            top=5,
            shares={metrics[0]: importance} if importance else {},
            statement="" if importance else "too few to say",
        ),
    ).write(out)
    specs = suggestions[0].specs if suggestions else []
    _search_manifest(metrics, seeds, planned, specs).write(out)
    rows = [_searched(number, seed, ece, status) for number, (ece, status) in
            enumerate(zip(eces, statuses, strict=True)) for seed in range(seeds)]  # fmt: skip
    write_results(out, "all", {"trials": rows})


def _suggestions(
    points: list[dict], eces: list[float | None], statuses: list[str], seeds: int
) -> list[SuggestionRecord]:
    suggestions = []
    for number, (point, ece, status) in enumerate(zip(points, eces, statuses, strict=True)):
        drop = 0.85 - (0.9 - ece / 2) if status == "done" else None
        suggestion = SuggestionRecord(
            number=number,
            status=status,
            point=point,
            drop=drop,
            is_within=drop is not None and drop <= 0.01,
            specs=[f"{number}-{seed}" for seed in range(seeds)],
        )
        suggestions.append(suggestion)
    return suggestions


def _search_manifest(
    metrics: tuple[str, ...], seeds: int, planned: int, specs: list[str]
) -> SearchManifest:
    numbers = list(range(seeds))
    return SearchManifest(
        version=1,
        question=SearchRequestRecord(
            method="mac_cal",
            seeds=SeedsRecord(network=numbers, head=numbers, is_paired=True),
            objective=ObjectiveRecord(metrics=list(metrics), guard=0.01),
            sampler="tpe",
            sampler_seed=0,
        ),
        rule="best ECE on select",
        trials=planned,
        command="tune-calib search mac_cal",
        commands=[CommandRecord(command="tune-calib search mac_cal", trials=planned)],
        specs={"baseline": [], "defaults": specs},
        store=None,
        data_root=None,
        address=None,
        gpus=0.0,
        at_once=1,
        study_storage=None,
    )


def _searched(number: int, seed: int, ece: float | None, status: str) -> dict:
    row = {
        "schema_version": 1,
        "spec_hash": f"{number}-{seed}",
        "rung": number,
        "status": status,
        "dataset": "digits",
        "backbone": "small_cnn",
        "network_seed": seed,
        "head_seed": seed,
    }
    if status == "done":
        row |= {"select/ece": ece + 0.01 * (seed - 0.5), "select/accuracy": 0.9 - ece / 2}
    return row
