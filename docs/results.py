"""Add results to the repository, and write the pages and tables that are computed from them.

``python -m docs.results OUT NAME`` takes the folder of ``tune-calib reproduce`` and writes its
tables to the folder NAME of ``docs/claims``. It copies what the pages are computed from: the joined
rows of trials and the draws of claimed metrics, without classifiers, and without curves and sample
records unless the table is about them. Other runs, OUT or the folders in it, are added to NAME with
the draws of ECE and NLL, with their searches, and with two curves: the train accuracy of unmasked
heads, and the share q of weights that masks keep. ``--only METRIC...`` leaves out select, other
metrics of test than these, half of the draws and the last digits, and adds curves of all heads: the
ECE on select, the train accuracy, and where in an epoch the best state lies.
``--logits STORE`` adds the logits of their networks, from which everything post-hoc can be
repeated.

The pages show the results of all such folders; without arguments, they and the tables of
``docs.result_tables`` are written again.
"""

import argparse
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from analysis.compare.network_check import UNMASKED, name_of
from analysis.ladder.results import QUANTITIES as OF_SAMPLES
from analysis.load import Run
from analysis.reproduction.files import Made
from analysis.reproduction.overview import PAGE, TABLES_PAGE, describe_tables, overview, read_all
from analysis.tidy import parted
from docs import result_tables
from tune_calib.engine.bank import FeatureBank
from tune_calib.errors import UserError
from tune_calib.files.documents import checksum_of, seal, unseal
from tune_calib.files.paths import parse_path
from tune_calib.files.store import read_manifest
from tune_calib.results.columns import TableName
from tune_calib.results.folders import LOCK, find_entries, read_lock
from tune_calib.results.manifests import RUN_MANIFEST
from tune_calib.results.tables import read_table, write_file
from tune_calib.spec.metrics import column
from tune_calib.spec.names import REPORTED, SEARCH_EVALUATED, SEARCH_MANIFEST, SEARCH_OUTCOME, TUNED

ROOT = result_tables.ROOT
SHIPPED = result_tables.SHIPPED
PAGES = result_tables.PAGES
IMAGES = ROOT / "docs/pages/images/papers"

_STEP = 2.0**-17  # of rounded draws, below a thousandth of a point: their last bits are zero
_COARSE = 2.0**-13  # with --only, about a hundredth of a point

_COMPARED = {"ece", "nll"}  # metrics of other runs whose draws decide between methods
_DRAWN = _COMPARED | {"brier", "coverage_at_risk"}  # with --only, if they are named
_OF_HEADS = ["select/ece", "train/accuracy", "q", "best_step"]

_TABLES: tuple[TableName, ...] = ("trials", "bins", "intervals", "shifts")
_MANIFESTS = (RUN_MANIFEST, TUNED, SEARCH_MANIFEST, SEARCH_OUTCOME, SEARCH_EVALUATED)


def ship(out: Path, name: str, only: Sequence[str] = ()) -> list[Path]:
    """Copy the results in a folder; return the folders of runs that are no tables of papers."""
    results = read_all(parse_path(str(out)))
    if results:
        _ship_tables(results, out, SHIPPED / name)
        return []
    runs = [Path(str(run)) for run in find_entries(parse_path(str(out)))] or [out]
    for run in runs:
        target = SHIPPED / name / run.resolve().name
        shutil.rmtree(target, ignore_errors=True)
        _ship_plain(run, target, only)
    return runs


def _ship_plain(source: Path, target: Path, only: Sequence[str] = ()) -> None:
    """Copy the tables and manifests of a run and of its searches, with the draws of two metrics."""
    trials = read_table(source, "trials")
    if not trials.num_rows:
        raise UserError(f"{source} contains no results; name the folder of a run")
    if only:
        columns = [name for name in trials.schema.names if _is_kept(name, only)]
        trials = _to_float32(trials.select(columns))
    _write_small(target, "trials", trials)
    is_run = (source / RUN_MANIFEST).exists()
    for table in _TABLES[1:] if is_run else ():
        content = read_table(source, table)
        if "draws" in content.schema.names:
            shown, compared = set(content["metric"].to_pylist()), _COMPARED
            if only:
                shown = compared = set(only) & _DRAWN
            content = _with_draws(content, shown, compared, is_coarse=bool(only))
        elif only and table == "bins":
            is_test = pc.equal(content["split"].cast(pa.string()), "test")
            content = _to_float32(content.filter(is_test))
        if content.num_rows:
            _write_small(target, table, content)
    unmasked = trials.filter(pc.equal(trials["head_method"], UNMASKED))["spec_hash"]
    curves = read_table(source, "curves")
    names, hashes = (curves[key].cast(pa.string()) for key in ("name", "spec_hash"))
    is_unmasked = pc.is_in(hashes, unmasked.combine_chunks().cast(pa.string()))
    is_fitted = pc.and_(pc.equal(names, column("train", "accuracy")), is_unmasked)
    is_shown = pc.or_(is_fitted, pc.equal(names, "q"))
    if only:
        alone = trials.filter(pc.is_null(trials["posthoc"]))["spec_hash"]
        is_alone = pc.is_in(hashes, alone.combine_chunks().cast(pa.string()))
        is_shown = pc.and_(pc.is_in(names, pa.array(_OF_HEADS)), is_alone)
    shown_curves = curves.filter(is_shown)
    if is_run and shown_curves.num_rows:
        _write_small(target, "curves", shown_curves)
    for name in _MANIFESTS:
        if (path := source / name).exists():
            manifest = unseal(path.read_bytes(), path)
            _write_json(target / name, _publishable(manifest))
    for part in sorted(source.iterdir()):  # searches, or the evaluation of a search
        if (part / "trials").is_dir():
            _ship_plain(part, target / part.name, only)


def _is_kept(name: str, only: Sequence[str]) -> bool:
    """Return whether ``--only`` keeps a column of trials."""
    split, _, metric = name.rpartition("/")
    return split not in REPORTED or (split == "test" and metric in only)


def _to_float32(content: pa.Table) -> pa.Table:
    """Return a table whose numbers have the digits of float32, which compress better."""
    for place, field in enumerate(content.schema):
        if field.type == pa.float64():
            rounded = content[field.name].cast(pa.float32(), safe=False).cast(pa.float64())
            content = content.set_column(place, field, rounded)
    return content


def _publishable(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with names instead of absolute paths, and commands for an empty folder."""
    text = re.sub(r"(?<![\w.:/])(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", json.dumps(manifest))
    text = text.replace(" --accept-code", "")
    plain: dict[str, Any] = json.loads(text)
    return plain


def ship_logits(run: Path, store: Path, target: Path) -> None:
    """Write the logits of select, calib and test of a run's networks as NPZ files to import."""
    trials = read_table(run, "trials", columns=["network_id", "data_digest"])
    banks = {}
    for folder in sorted((store / "banks").iterdir()):
        manifest = read_manifest(folder)
        if manifest["has_test"]:
            banks[manifest["key"]["network_id"]] = folder
    networks = dict(zip(*(trials[name].to_pylist() for name in trials.schema.names), strict=True))
    for network, digest in networks.items():
        if network not in banks:
            raise UserError(f"{store} has no feature bank of network {network}; run a head on it")
        files = {}
        for split, outputs in FeatureBank(banks[network]).evaluated().items():
            path = target / network / f"{split}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            logits = outputs.logits.numpy().astype(np.float16)
            np.savez_compressed(path, logits=logits, labels=outputs.labels.numpy())
            files[path.name] = checksum_of(path)
        content = {"network_id": network, "data_digest": digest, "files": files}
        _write_json(target / network / "logits.json", content)


def _ship_tables(results: list[Made], out: Path, to: Path) -> None:
    """Copy the results of tables of papers, and their figures."""
    for made in results:
        table = made.table
        shutil.rmtree(to / table.folder, ignore_errors=True)
        for _, run in made.runs:
            _ship_run(made, run, to)
            for figure in table.figures[:1]:
                picture = Path(str(run.out)) / "figures" / f"{figure}.png"
                if picture.is_file():
                    # With 256 colors, at a third of the size.
                    image = Image.open(picture).convert("RGB")
                    image = image.quantize(256, dither=Image.Dither.NONE)
                    image.save(IMAGES / _picture(made, run, figure), optimize=True)
        lock = read_lock(out / table.folder)
        lock = _publishable({**lock, "command": made.command})
        _write_json(to / table.folder / LOCK, lock)


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
    """Write tables and both pages, and delete the pictures that they do not show."""
    for path, text in result_tables.generate():
        path.write_text(text, encoding="utf-8")
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
    manifest = _publishable({**manifest, "command": made.command})
    _write_json(target / "sweep.json", manifest)
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
        _write_small(target, table, content)


def _write_small(target: Path, table: TableName, content: pa.Table) -> None:
    """Write a file of one table, a quarter smaller than usual where it has draws."""
    options: dict[str, Any] = {"compression_level": 19, "write_statistics": False}
    if "draws" in content.schema.names:
        options["use_dictionary"] = [name for name in content.schema.names if name != "draws"]
        options["column_encoding"] = {"draws.list.element": "BYTE_STREAM_SPLIT"}
    write_file(target, "all", table, content, **options)


def _with_draws(
    content: pa.Table, shown: set[str], claimed: set[str], is_coarse: bool = False
) -> pa.Table:
    """Return the rows of the shown metrics, with rounded draws of the claimed ones only."""
    every, step = (2, _COARSE) if is_coarse else (1, _STEP)
    rows = content.filter(pc.is_in(content["metric"], pa.array(sorted(shown), pa.string())))
    index, kind = content.schema.get_field_index("draws"), content.schema.field("draws").type
    rounded: list[Any] = []
    for draws in rows["draws"].to_pylist():
        if draws is not None:
            draws = np.round(np.divide(draws[::every], step)) * step
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--logits", metavar="STORE", type=Path)
    parser.add_argument("--only", metavar="METRIC", nargs="+", default=[])
    arguments = parser.parse_args()
    if arguments.out:
        for run in ship(arguments.out, arguments.name, arguments.only):
            if arguments.logits:
                ship_logits(run, arguments.logits, SHIPPED / arguments.name / "logits")
    write_pages()
