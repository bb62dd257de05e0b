"""The published numbers, from package data or CalArena's files, in the shape of results of runs."""

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from io import StringIO
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from tune_calib.errors import UserError, reading
from tune_calib.files.paths import fetch_files
from tune_calib.spec.metrics import METRICS, OOD_METRICS

if TYPE_CHECKING:  # listing the names of tables must not load pandas
    import pandas as pd

    from analysis.load import Run
    from tune_calib.files.paths import AnyPath

_FOLDER = files("analysis") / "published"
_NUMBERS = tuple(
    _FOLDER / name for name in ("published_results.csv", "reproductions.csv", "posthoc.csv")
)
_PARTS = {"data sets": "dataset", "backbones": "arch", "metrics": "metric", "methods": "method"}

BASE_OF_FILES = "Base-model"
"""Name of the uncalibrated network in the result files of CalArena."""

# Names of metrics in these files, and ours.
_OF_FILES = {"logloss": "nll", "brier": "brier", "ece-15": "ece", "accuracy": "accuracy"}

# Names of methods in the papers that differ from ours by more than case.
_PRINTED = {
    "maccal": {"ce": "Vanilla", "mit_a": "MIT", "mac_cal": "MaC-Cal"},
    "fedlas": {
        "flsd": "FLSD-53", "fedlas_ls": "FeDLaS-LS", "fedlas_mbls": "FeDLaS-MbLS",
        "temperature": "CE+TS",
    },
    "tst": {"ce": "Base", "temperature": "TS", "vtst": "V-TST", "retrain": "Linear"},
}  # fmt: skip


def published(table: str) -> "pd.DataFrame":
    numbers = _read_numbers()
    rows = numbers[numbers["source"] == table]
    if rows.empty:
        raise UserError(f"no published table {table!r}; known: {', '.join(describe_published())}")
    return rows.reset_index(drop=True)


@cache
def describe_published() -> dict[str, dict[str, Any]]:
    tables = defaultdict[str, list[dict[str, str]]](list)
    for path in _NUMBERS:
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            # A benchmark of one table has no name for it.
            tables[f"{row['paper']}/{row['table']}".rstrip("/")].append(row)
    descriptions: dict[str, dict[str, Any]] = {}
    for name, rows in sorted(tables.items()):
        descriptions[name] = {}
        for part, column in _PARTS.items():
            descriptions[name][part] = list(dict.fromkeys(map(itemgetter(column), rows)))
        descriptions[name]["numbers"] = len(rows)
    return descriptions


def read_result_files(folder: "AnyPath") -> "pd.DataFrame":
    """Read the result files of CalArena, a CSV file per method with a row per experiment.

    The columns are dataset, model and METHOD_logloss, METHOD_brier, METHOD_ece-15 and
    METHOD_accuracy; the file is METHOD.csv. Other columns are ignored.
    """
    import pandas as pd

    frames = []
    for path, copy in fetch_files(folder, "*.csv"):
        with reading(copy, "is no table of results", "its columns must be those of CalArena"):
            table = pd.read_csv(copy, dtype={"dataset": str, "model": str})
            columns = {f"{copy.stem}_{name}": metric for name, metric in _OF_FILES.items()}
            scores = table[["dataset", "model", *columns]].rename(columns=columns)
            scores[list(_OF_FILES.values())] = scores[list(_OF_FILES.values())].astype(float)
        if scores.duplicated(["dataset", "model"]).any():
            raise UserError(f"{path} has two rows of one experiment; keep one of them")
        rows = scores.melt(["dataset", "model"], var_name="metric")
        frames.append(rows.rename(columns={"model": "backbone"}).assign(method=copy.stem))
    frame = pd.concat(frames, ignore_index=True)
    return _with_columns(frame, source=folder.name, split="test", note="")


def _with_columns(frame: "pd.DataFrame", **columns: Any) -> "pd.DataFrame":
    import pandas as pd

    from analysis.tidy import COLUMNS, SEEDS

    seeds = dict.fromkeys(SEEDS, pd.array([pd.NA] * len(frame), dtype="Int64"))
    texts = {"variant": "", "status": "published", "spec_hash": "", "flags": ""}
    return frame.assign(**{**columns, **texts, **seeds})[list(COLUMNS)]


def printed_name(table: str, method: str) -> str | None:
    name = _PRINTED.get(table.partition("/")[0], {}).get(method, method).lower()
    methods = published(table)["method"]
    return next(iter(methods[methods.str.lower() == name].unique()), None)


def published_titles() -> dict[str, str]:
    lines = (_FOLDER / "titles.csv").read_text(encoding="utf-8").splitlines()
    return dict(map(itemgetter("name", "title"), csv.DictReader(lines)))


def titled(names: Iterable[str]) -> str:
    titles = published_titles()
    return " ".join(titles.get(name, name) for name in names)


def compare_with(run: "Run", table: str) -> "Run":
    if table == run.manifest.published:
        return run
    rungs = [
        rung.model_copy(update={"published": printed_name(table, rung.label)}) for rung in run.rungs
    ]
    if not any(map(attrgetter("published"), rungs)):
        printed = ", ".join(published(table)["method"].unique())
        raise UserError(f"{table} has none of the methods of this run; it has {printed}")
    manifest = run.manifest.model_copy(update={"published": table, "rungs": rungs})
    return replace(run, manifest=manifest)


@cache
def _read_numbers() -> "pd.DataFrame":
    import pandas as pd

    texts = [StringIO(path.read_text(encoding="utf-8")) for path in _NUMBERS]
    frames = [pd.read_csv(text, keep_default_na=False) for text in texts]
    rows = pd.concat(frames, ignore_index=True).rename(columns={"arch": "backbone"})
    data = rows["dataset"].str.partition("->")
    is_ood = rows["metric"].isin(OOD_METRICS)
    fractions = [name for name in METRICS if METRICS[name].unit == "fraction"]
    return _with_columns(
        rows,
        source=(rows["paper"] + "/" + rows["table"]).str.rstrip("/"),
        dataset=data[0],
        split=("ood/" + data[2].where(data[2] != "", "average")).where(is_ood, "test"),
        # Rounded, since 1.22 / 100 is 0.012199999999999999.
        value=rows["value"].where(~rows["metric"].isin(fractions), (rows["value"] / 100).round(10)),
    )
