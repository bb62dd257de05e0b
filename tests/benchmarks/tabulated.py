"""Tables of trained points, by which searches can be replayed without training.

python -m tests.benchmarks.tabulated TABLE [--points N] [--folder runs/tabulated]

The points of a table are the published ones of a method and a scrambled Sobol sequence over its
declared space, each under two seeds. They are trained as the rungs of a ladder, so that a table is
continued by the same command; points of the shipped table are taken from there. It then writes
``TABLE.parquet``, with the metrics on ``select`` of each epoch, and ``TABLE-test.parquet``, with
those on ``test`` at the last one, which no replay opens. Runs of one method with several lengths
of schedules (TABLE-6, TABLE-15) share a table.
"""

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score
from sklearn.model_selection import GroupKFold

from tests.benchmarks.common import CIFAR10_ROOT
from tune_calib.files.paths import parse_path
from tune_calib.results.selection import BASELINE
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import Ladder, Rung
from tune_calib.spec.request import SearchRequest, build_request
from tune_calib.spec.resolve import resolve
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import versions
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.plan import execute_run
from tune_calib.tuning.search.run import SearchRun, build_search_run
from tune_calib.tuning.work.replay import GRID, KEY, ORDER, Forest, TableRecord, load_table, restore

SEEDS = 2
SOBOL_SEED = 0
WATCHED = ("accuracy", "ece", "nll")  # of each epoch
ON_TEST = (*WATCHED, "brier", "confidence_gap")
NETWORKS = CIFAR10_ROOT.parent / "networks"
SHIPPED = Path(__file__).parents[2] / "docs" / "benchmarks"


@dataclass(frozen=True)
class Table:
    """The searched method of a table, the settings of its search, and the number of points."""

    method: str
    points: int
    request: dict[str, Any] = field(default_factory=dict)


HEADS = {"data_root": CIFAR10_ROOT, "recipe": "focal", "head_epochs": 10}
RESNET20 = {
    **HEADS,
    "dataset": "cifar10",
    "backbone": "resnet20_he",
    "weights": NETWORKS / "cifar10" / "resnet20.safetensors",
    "holdout": "test",
    "norm": "imagenet",
    "set": {"head.augment": "none"},
}
RESNET50 = {
    **HEADS,
    "dataset": "cifar100",
    "backbone": "resnet50",
    "weights": NETWORKS / "cifar100" / "resnet50.safetensors",
}
TABLES = {
    f"resnet20-{name}": Table(name, 3000, RESNET20) for name in ("mac_cal", "retrain", "vtst")
}
TABLES["resnet50-mac_cal"] = Table("mac_cal", 200, RESNET50)
for method in ("ce", "ls", "fl"):
    for epochs in (6, 15, 30, 60):
        TABLES[f"digits-{method}-{epochs}"] = Table(method, 100, {"epochs": epochs})


def build_search(table: Table, folder: Path) -> SearchRun:
    """Build the search whose points a table has; it is never run."""
    values = {name: str(v) if isinstance(v, Path) else v for name, v in table.request.items()}
    fields = {"method": table.method, "seeds": SEEDS, "store": str(folder / "store"), **values}
    request = build_request(SearchRequest, fields)
    return build_search_run(request, resolve(request), "tabulated").read_files(is_dry=False)


def list_points(search: SearchRun, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the settings of each point."""
    candidates = search.definition.candidates
    published = candidates.first()
    drawn = candidates.space.sobol(count - len(published), SOBOL_SEED)
    for number, point in enumerate([*published, *drawn]):
        yield str(number), point


def read_shipped(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the shipped rows of a table on ``select`` and on ``test``; none if it is new."""
    paths = SHIPPED / f"{name}.parquet", SHIPPED / f"{name}-test.parquet"
    if not paths[0].exists():
        return pd.DataFrame(columns=["point", "epochs"]), pd.DataFrame()
    return pd.read_parquet(paths[0]), pd.read_parquet(paths[1])


def count_epochs(search: SearchRun) -> int:
    spec = search.definition.candidates.trials({}, 0)[0].spec
    return (spec.head or spec.network).epochs


def build_run(name: str, search: SearchRun, count: int, folder: Path) -> LadderRun:
    """Build the ladder of the points that the shipped table lacks."""
    candidates = search.definition.candidates
    shipped, _ = read_shipped(name_table(name))
    trained = set(shipped.loc[shipped["epochs"] == count_epochs(search), "point"].astype(str))
    rungs = []
    for label, point in list_points(search, count):
        if label not in trained:
            rungs.append(candidates.rung(point, label))
    ladder = Ladder(name, f"Points of {candidates.method}", tuple(rungs))
    location = replace(search.location, out=parse_path(str(folder / name)))
    return LadderRun(ladder, search.resolved, location)


def build_baseline(name: str, search: SearchRun, folder: Path) -> LadderRun:
    """Build the ladder of the baseline of a table, in a folder of its own."""
    ladder = Ladder(f"{name}-baseline", "Baseline", (Rung(BASELINE, "", kind="base"),))
    location = replace(search.location, out=parse_path(str(folder / f"{name}-baseline")))
    return LadderRun(ladder, search.resolved, location)


def read_points(
    name: str, table: Table, search: SearchRun, folder: Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the complete points of a run: metrics on ``select`` by epoch, and those on ``test``."""
    points = dict(list_points(search, table.points))
    trials = read_table(folder / name, "trials").to_pandas()
    seed = "head_seed" if search.definition.candidates.kind == "head" else "network_seed"
    trials = trials.assign(point=trials["rung_label"].astype(int), seed=trials[seed])
    trials = trials[trials.groupby("point")["seed"].transform("nunique") == SEEDS]
    trials["settings"] = [json.dumps(points[str(number)]) for number in trials["point"]]
    trials["epochs"] = count_epochs(search)
    curves = read_table(folder / name, "curves").to_pandas()
    curves = curves[curves["name"].isin([f"select/{metric}" for metric in WATCHED])]
    wide = curves.pivot(index=["spec_hash", "epoch"], columns="name", values="value")
    key = ["point", "epochs", "seed", "status", "settings"]
    every_epoch = pd.DataFrame({"epoch": range(1, 1 + trials["epochs"].iloc[0])})
    rows = trials[["spec_hash", *key, "own_s"]].merge(every_epoch, how="cross")
    rows = rows.merge(wide.reset_index(), on=["spec_hash", "epoch"], how="left")
    tests = trials[[*key[:4], *(f"test/{metric}" for metric in ON_TEST)]]
    return rows.drop(columns="spec_hash"), tests


def name_table(run: str) -> str:
    """Return the table to which a run belongs."""
    return re.sub(r"-\d+$", "", run)


def write_tables(name: str, folder: Path) -> None:
    """Write the points of the runs of a table, and with them the fit of the surrogate."""
    runs = {run: TABLES[run] for run in TABLES if name_table(run) == name}
    shipped, shipped_tests = read_shipped(name)
    baselines = {}
    for row in shipped.attrs.get(KEY, {}).get("baseline", []):
        baselines.setdefault(row["epochs"], []).append(row)
    parts, tests, lengths = [shipped], [shipped_tests], []
    for run, table in runs.items():
        if (folder / run / "trials").exists():
            search = build_search(table, folder)
            execute_run(build_baseline(run, search, folder), Context())
            rows, on_test = read_points(run, table, search, folder)
            parts.append(rows)
            tests.append(on_test)
            lengths.append((count_epochs(search), run, search))
            baselines[count_epochs(search)] = read_baseline(folder / f"{run}-baseline")
    rows, on_test = pd.concat(parts), pd.concat(tests)
    complete = set.intersection(*(set(part["point"]) for _, part in rows.groupby("epochs")))
    rows, on_test = (frame[frame["point"].isin(complete)] for frame in (rows, on_test))
    _, longest, search = max(lengths, key=itemgetter(0))
    record = build_record(search, longest, dict(sorted(baselines.items())))
    path = folder / f"{name}.parquet"
    write_file(rows.sort_values(list(ORDER)), path, record)
    write_file(rows.sort_values(list(ORDER)), path, replace_r2(record, path))
    write_file(on_test.sort_values(["point", "epochs", "seed"]), folder / f"{name}-test.parquet")
    for file in sorted(folder.glob(f"{name}*.parquet")):
        print(file.name, f"{file.stat().st_size / 1e6:.2f} MB", len(complete), "points")


def read_baseline(out: Path) -> list[dict[str, float]]:
    """Read the metrics of the baseline on ``select`` by network seed."""
    trials = read_table(out, "trials").to_pandas().sort_values("network_seed")
    columns = {f"select/{metric}": metric for metric in WATCHED}
    return trials[list(columns)].rename(columns=columns).to_dict("records")


def build_record(
    search: SearchRun, run: str, baselines: dict[int, list[dict[str, float]]]
) -> TableRecord:
    definition = search.definition
    baseline = [row | {"epochs": n} for n, rows in baselines.items() for row in rows]
    space = definition.candidates.space.settings.items()
    question = definition.record
    return TableRecord(
        method=definition.method,
        given=question.given,
        defaults=question.defaults,
        recipe=question.recipe,
        own_recipes=question.own_recipes,
        space={name: setting.plain() for name, setting in space},
        seeds=SEEDS,
        epochs=list(baselines),
        baseline=baseline,
        command=f"python -m tests.benchmarks.tabulated {run}",
        versions=json.loads(versions()),
    )


def write_file(frame: pd.DataFrame, path: Path, record: TableRecord | None = None) -> None:
    metrics = [name for name in frame if "/" in name]
    frame = frame.astype(dict.fromkeys(metrics, "float32"))
    frame.attrs = {} if record is None else {KEY: record.model_dump(mode="json")}
    frame.to_parquet(path, compression="zstd", index=False)


def replace_r2(record: TableRecord, path: Path) -> TableRecord:
    """Add the R2 of the surrogate, cross-validated by point, at the last epoch and over all."""
    table = load_table(str(path))
    inputs, outputs = table.list_cells()
    groups = np.repeat(np.arange(len(table.points)), len(record.epochs))
    predicted = np.empty_like(outputs)
    for train, held in GroupKFold(5).split(inputs, outputs, groups):
        predicted[held] = Forest(inputs[train], outputs[train]).predict(inputs[held])
    shape = (-1, len(table.metrics), len(GRID))
    true, guess = (restore(o[:, :-1].reshape(shape), table.metrics) for o in (outputs, predicted))
    r2 = {}
    for index, metric in enumerate(table.metrics):
        r2[metric] = {
            "final": r2_score(true[:, index, -1], guess[:, index, -1]),
            "curve": r2_score(true[:, index].ravel(), guess[:, index].ravel()),
        }
    return record.model_copy(update={"r2": r2})


def main() -> None:
    """Train the missing points of a run and write its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--points", type=int, help="instead of the number that is shipped")
    parser.add_argument("--folder", type=Path, default=Path("runs/tabulated"))
    parser.add_argument("--write", action="store_true", help="only write what is trained so far")
    options = parser.parse_args()
    table = TABLES[options.table]
    search = build_search(table, options.folder)
    if not options.write:
        run = build_run(options.table, search, options.points or table.points, options.folder)
        execute_run(run, Context())
    write_tables(name_table(options.table), options.folder)


if __name__ == "__main__":
    main()
