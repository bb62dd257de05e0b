"""Tables of trained points, by which searches can be replayed without training.

python -m tests.benchmarks.tabulated TABLE [--points N] [--folder runs/tabulated]

The points of a table are the published ones of a method and a scrambled Sobol sequence over its
declared space, each under two seeds. They are trained as the rungs of a ladder, so that a table is
continued by the same command. It then writes ``TABLE.parquet``, with the metrics on ``select`` of
each epoch, and ``TABLE-test.parquet``, with those on ``test`` at the last one, which no replay opens.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tests.benchmarks.common import CIFAR10_ROOT
from tune_calib.files.paths import parse_path
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import Ladder
from tune_calib.spec.request import SearchRequest, build_request
from tune_calib.spec.resolve import resolve
from tune_calib.tuning.context import Context
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.plan import execute_run
from tune_calib.tuning.search.run import SearchRun, build_search_run

SEEDS = 2
SOBOL_SEED = 0
WATCHED = ("accuracy", "ece", "nll")  # of each epoch
ON_TEST = (*WATCHED, "brier", "confidence_gap")
NETWORKS = CIFAR10_ROOT.parent / "networks"


@dataclass(frozen=True)
class Table:
    """The searched method of a table, the settings of its search, and the number of points."""

    method: str
    points: int
    request: dict[str, Any] = field(default_factory=dict)


RESNET20 = {
    "dataset": "cifar10",
    "data_root": CIFAR10_ROOT,
    "backbone": "resnet20_he",
    "weights": NETWORKS / "cifar10" / "resnet20.safetensors",
    "holdout": "test",
    "norm": "imagenet",
    "recipe": "focal",
    "set": {"head.augment": "none"},
    "head_epochs": 10,
}
RESNET50 = {
    "dataset": "cifar100",
    "data_root": CIFAR10_ROOT,
    "backbone": "resnet50",
    "weights": NETWORKS / "cifar100" / "resnet50.safetensors",
    "recipe": "focal",
    "head_epochs": 10,
}
TABLES = {f"resnet20-{name}": Table(name, 3000, RESNET20) for name in ("mac_cal", "retrain", "vtst")}
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


def build_run(name: str, search: SearchRun, count: int, folder: Path) -> LadderRun:
    """Build the ladder of the points of a table."""
    candidates = search.definition.candidates
    rungs = [candidates.rung(point, label) for label, point in list_points(search, count)]
    ladder = Ladder(name, f"Points of {candidates.method}", tuple(rungs))
    location = replace(search.location, out=parse_path(str(folder / name)))
    return LadderRun(ladder, search.resolved, location)


def write_tables(name: str, search: SearchRun, run: LadderRun, folder: Path) -> None:
    """Write the metrics on ``select`` by point, seed and epoch, and those on ``test``."""
    points = dict(list_points(search, len(run.ladder.rungs)))
    out = run.location.out
    trials = read_table(out, "trials").to_pandas()
    trials = trials.assign(point=trials["rung_label"].astype(int), seed=trials["network_seed"])
    key = ["point", "seed", "status"]
    settings = pd.DataFrame([points[str(n)] for n in trials["point"]], index=trials.index)
    tests = {f"test/{metric}": trials[f"test/{metric}"].astype("float32") for metric in ON_TEST}
    curves = read_table(out, "curves").to_pandas()
    curves = curves[curves["name"].isin([f"select/{metric}" for metric in WATCHED])]
    wide = curves.pivot(index=["spec_hash", "epoch"], columns="name", values="value")
    wide = wide.astype("float32").reset_index()
    rows = pd.concat([trials[["spec_hash", *key, "own_s"]], settings], axis="columns")
    rows = rows.merge(wide, on="spec_hash").drop(columns="spec_hash")
    rows = rows.sort_values([*key[:2], "epoch"], ignore_index=True)
    rows.to_parquet(folder / f"{name}.parquet", compression="zstd", index=False)
    tests = pd.concat([trials[key], pd.DataFrame(tests)], axis="columns")
    tests = tests.sort_values(key[:2], ignore_index=True)
    tests.to_parquet(folder / f"{name}-test.parquet", compression="zstd", index=False)
    sizes = {path.name: path.stat().st_size for path in folder.glob(f"{name}*.parquet")}
    print(json.dumps(sizes, indent=1))


def main() -> None:
    """Train the missing points of a table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--points", type=int, help="instead of the number that is shipped")
    parser.add_argument("--folder", type=Path, default=Path("runs/tabulated"))
    options = parser.parse_args()
    table = TABLES[options.table]
    search = build_search(table, options.folder)
    run = build_run(options.table, search, options.points or table.points, options.folder)
    execute_run(run, Context())
    write_tables(options.table, search, run, options.folder)


if __name__ == "__main__":
    main()
