"""Add results of papers' tables to the repository, and write their pages.

``python -m docs.results OUT NAME`` takes the folder of ``tune-calib reproduce`` and writes the
folder NAME of ``docs/claims``. It copies what the pages are computed from: the joined tables of
trials and the draws of claimed metrics, without classifiers, and without curves and sample records
unless the table is about them. The pages show the results of all such folders; without arguments,
they are written again.
"""

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.compare.network_check import name_of
from analysis.ladder.results import QUANTITIES as OF_SAMPLES
from analysis.load import Run
from analysis.reproduction.files import Made
from analysis.reproduction.overview import (
    PAGE,
    TABLES_PAGE,
    describe_tables,
    overview,
    read_all,
)
from analysis.tidy import parted
from tune_calib.documents import seal, unseal
from tune_calib.paths import parse_path
from tune_calib.results.columns import TableName
from tune_calib.results.folders import LOCK, read_lock
from tune_calib.results.tables import read_table, write_file

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "docs/claims"
PAGES = ROOT / "docs/pages"
IMAGES = ROOT / "docs/pages/images/papers"

_STEP = 2.0**-17  # of rounded draws, below a thousandth of a point: their last bits are zero

_TABLES: tuple[TableName, ...] = ("trials", "bins", "intervals", "shifts")


def ship(out: Path, name: str) -> None:
    """Copy the results of all tables in a folder, and their figures."""
    to = SHIPPED / name
    shutil.rmtree(to, ignore_errors=True)
    for made in read_all(parse_path(str(out))):
        table = made.table
        for _, run in made.runs:
            _ship_run(made, run, to)
            for figure in table.figures[:1]:
                picture = Path(str(run.out)) / "figures" / f"{figure}.png"
                if picture.is_file():
                    shutil.copy(picture, IMAGES / _picture(made, run, figure))
        lock = read_lock(out / table.folder)
        _write_json(to / table.folder / LOCK, {**lock, "command": made.command})


def read_shipped() -> list[Made]:
    """Read the results of all tables in the repository, those of one table together."""
    folders = sorted((path for path in SHIPPED.iterdir() if path.is_dir()), reverse=True)
    tables: list[Made] = []
    for folder in folders:
        tables += read_all(parse_path(str(folder)))
    return sorted(tables, key=lambda made: made.table.name)


def pages() -> dict[str, str]:
    """Return the pages of claims and of tables, made of the results in the repository."""
    tables = read_shipped()
    return {PAGE: overview(tables), TABLES_PAGE: describe_tables(tables, _pictured)}


def write_pages() -> None:
    """Write both pages, and delete the pictures that they do not show."""
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    shown = (PAGES / TABLES_PAGE).read_text(encoding="utf-8")
    for picture in IMAGES.iterdir():
        if f"/{picture.name})" not in shown:
            picture.unlink()


def _ship_run(made: Made, run: Run, to: Path) -> None:
    source = Path(str(run.out))
    target = to / made.table.folder / source.name
    manifest = unseal((source / "sweep.json").read_bytes(), source / "sweep.json")
    _write_json(target / "sweep.json", {**manifest, "command": made.command})
    claimed: set[str] = set()
    for claim in made.table.claims:
        claimed.update(parted(comparison.metric)[0] for comparison in claim.comparisons)
    shown = claimed | {parted(metric)[0] for metric in made.table.metrics}
    further: dict[TableName, bool] = {
        "samples": any(name.rpartition("_")[0] in OF_SAMPLES for name in shown),
        "curves": "sparsity" in made.table.figures,
        "logits": "angles_sd" in shown,
    }
    for table in (*_TABLES, *(name for name, is_used in further.items() if is_used)):
        content = read_table(source, table)
        if not content.num_rows:
            continue
        if "draws" in content.schema.names:
            content = _with_draws(content, shown, claimed)
        write_file(target, "all", table, content=content, level=19)


def _with_draws(content: pa.Table, shown: set[str], claimed: set[str]) -> pa.Table:
    """Return the rows of the shown metrics, with rounded draws of the claimed ones only."""
    rows = content.filter(pc.is_in(content["metric"], pa.array(sorted(shown), pa.string())))
    index, kind = content.schema.get_field_index("draws"), content.schema.field("draws").type
    rounded: list[Any] = []
    for draws in rows["draws"].to_pylist():
        if draws is not None:
            draws = np.round(np.divide(draws, _STEP)) * _STEP
        rounded.append(draws)
    rows = rows.set_column(index, "draws", pa.array(rounded, kind))
    is_claimed = pc.is_in(rows["metric"], pa.array(sorted(claimed), pa.string()))
    others = rows.filter(pc.invert(is_claimed))
    nothing = pa.nulls(others.num_rows, kind)
    return pa.concat_tables([rows.filter(is_claimed), others.set_column(index, "draws", nothing)])


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(seal(content))


def _picture(made: Made, run: Run, name: str) -> str:
    return re.sub(r"[^\w.-]", "-", f"{made.table.folder}-{name_of(run)}-{name}.png")


def _pictured(made: Made, run: Run, name: str) -> str | None:
    file = _picture(made, run, name)
    if not (IMAGES / file).is_file():
        return None
    return f"images/papers/{file}"


if __name__ == "__main__":
    if arguments := sys.argv[1:]:
        out, name = arguments
        ship(Path(out), name)
    write_pages()
