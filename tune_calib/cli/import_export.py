"""The commands import, export, check-method and check-gpu, for what users bring themselves."""

import shlex
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.tables.table import table_of
from tune_calib.cli.common import open_folder
from tune_calib.cli.options import DataRoot, StoreRoot, complete, expand, flag
from tune_calib.cli.read import run_as_trials_ran
from tune_calib.console import Text, echo, shown
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, atomic_write, parse_path, refuse_existing
from tune_calib.results.folders import find_entries, is_search, read_search_manifest
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import rankable_metrics
from tune_calib.spec.slots.data import ImportedData
from tune_calib.text import format_count

if TYPE_CHECKING:
    from tune_calib.files.store import Store

_FILES = (
    "[ROLE=]FILE[:KEY]: npz, npy, safetensors, Parquet or HDF5; repeat for more arrays, such as "
    "groups=FILE:KEY, integers by which samples stay together"
)


def _files(help_: str) -> Any:
    return typer.Option(metavar="FILE", help=help_)


def import_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="name for --imported NAME")],
    store: Annotated[
        str, typer.Option(metavar="PATH", help="folder or URL of artifacts; --store of later runs")
    ],
    train: Annotated[list[str] | None, _files("training split, needed for heads")] = None,
    select: Annotated[
        list[str] | None, _files("default: half of --calib; none: no select, and all of --calib")
    ] = None,
    calib: Annotated[list[str] | None, _files(_FILES)] = None,
    test: Annotated[list[str] | None, _files("test split; read once, at the end")] = None,
    head: Annotated[
        list[str] | None, _files("weight and bias of the last layer; needed with features")
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="import many models: an HDF5 file or a folder with the arrays "
            "DATASET/MODEL/{probas_cal,labels_cal,probas_test,labels_test}",
            callback=expand,
        ),
    ] = None,
    replace: Annotated[
        bool, flag("--replace", "overwrite an existing import of this name")
    ] = False,
) -> None:
    """Import features or logits to use in place of a data set and network.

    Examples:
        tune-calib import mine --calib calib.npz --test test.npz --store store
        tune-calib import net --calib logits=z.npy --calib labels=y.npy --test t.npz --store store
        tune-calib import calarena --models cv-multiclass.h5 --select none --store store
    """
    from tune_calib.engine.imports import check_files, check_name, write_import
    from tune_calib.files.store import Store

    check_name(name)
    artifacts = Store(parse_path(store))
    words = ["tune-calib", "compare", "ce", "temperature", "--imported", name, "--store", store]
    if models is not None:
        if train or calib or test or head:
            raise UserError("`models` names all splits; leave `train`, `calib`, `test`, `head` out")
        if select not in (None, ["none"]):
            raise UserError("takes only none with `models`; or leave it out", "select")
        _import_models(name, models, select or (), artifacts, replace=replace)
        words[2:6] = ["--all", "posthoc", "--imported", f"{name}/*"]
    else:
        with warnings.catch_warnings(record=True, action="always") as caught:
            checked = check_files(train or (), select or (), calib or (), test or (), head or ())
        for warning in caught:
            echo(f"note: {warning.message}")
        write_import(name, checked, artifacts, replace=replace)
        echo(_describe(name, checked.record))
    echo(f"next: {shlex.join(words)}")


def _import_models(
    name: str, path: Path, select: Sequence[str], store: "Store", replace: bool
) -> None:
    from tune_calib.engine.imports import find_models, import_models

    models = find_models(path)
    refused = import_models(name, models, select, store, replace=replace)
    if count := len(models) - len(refused):
        echo(f"{format_count(count, 'model')} of {path} imported as {name}/...")
    if refused:
        raise UserError(
            f"{path}: {format_count(len(refused), 'model')} refused, first {refused[0]}; arrays of "
            "the splits end in _select, _cal and _test; the same command skips what is imported"
        )


def _describe(name: str, record: ImportedData) -> str:
    counts = []
    for split in ("train", "select", "calib", "test"):
        if count := getattr(record, split):
            counts.append(f"{split} {count}")
    lines = [
        f"imported as {name} ({record.digest}): {record.classes} classes, "
        f"{format_count(record.width, 'feature')}; samples: {', '.join(counts)}"
    ]
    if record.outputs == "probs":
        lines.append("probabilities are used as log-probabilities (at least 1e-12)")
    if record.outputs == "head":
        lines.append("logits are computed from the features with --head")
    if record.is_cut:
        how = "none of whose groups is divided" if record.groups else "stratified by class"
        lines.append(f"select and calib are halves of --calib, {how}")
    if not record.train:
        lines.append(
            "note: without --train, reports cannot show how well the network fits its training data"
        )
    if not record.has_heads:
        lines.append("note: post-hoc methods can use it; head methods need features of --train")
    return "\n".join(lines)


def _write_table(folder: AnyPath, file: AnyPath) -> str:
    if not is_search(folder):
        from analysis.tidy import write_results_file

        return write_results_file(folder, file)
    from tune_calib.api.opened import OpenSearch

    refuse_existing(file)
    rows = OpenSearch(folder).suggestions
    atomic_write(file, rows.to_parquet(index=False))
    return f"{format_count(len(rows), 'suggestion')} written: {file}"


def export(
    out: Annotated[str, typer.Argument(help="folder or URL of a run or a search")],
    file: Annotated[
        str,
        typer.Argument(
            help="FILE.safetensors, FILE.parquet for the results of all trials, or FILE.h5 with "
            "--logits"
        ),
    ],
    shell: typer.Context,
    trial: Annotated[
        str | None, typer.Option(metavar="HASH", help="hash of the trial, or its beginning")
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="export the trial that is best on select",
            autocompletion=complete(rankable_metrics),
        ),
    ] = None,
    onnx: Annotated[bool, flag("--onnx", "write FILE.onnx too")] = False,
    logits: Annotated[
        bool, flag("--logits", "export logits and labels of all trials, as CalArena reads them")
    ] = False,
    store: StoreRoot = None,
    data_root: DataRoot = None,
) -> None:
    """Export the calibrated network of a trial, or the results or logits of all trials.

    Examples:
        tune-calib export runs/mine calibrated.safetensors --best ece
        tune-calib export runs/mine other.safetensors --trial 3fa9 --onnx
        tune-calib export runs/mine results.parquet
        tune-calib export runs/mine --logits mine-multiclass.h5
    """
    folder = open_folder(out, runs_plugins=True)
    if entries := find_entries(folder):
        raise UserError(
            f"{out} contains {len(entries)} entries; give one of them, e.g. {entries[0]}"
        )
    is_table = file.endswith(".parquet") and not logits
    if (logits or is_table) and (trial or best or onnx):
        raise UserError("all trials are exported; leave `trial`, `best` and `onnx` out")
    if is_table:
        echo(_write_table(folder, parse_path(file)))
        return
    run_as_trials_ran(folder, shell)

    from tune_calib.library.export import export as write
    from tune_calib.library.logits import export_logits

    if is_search(folder) and store is None:
        store = read_search_manifest(folder).store
    artifacts = parse_path(store) if store else folder / "store"
    if logits:
        echo(export_logits(folder, artifacts, data_root, file))
    else:
        echo(write(folder, artifacts, data_root, file=file, trial=trial, best=best, is_onnx=onnx))


def check_method(
    name: Annotated[str, typer.Argument(help="method, usually one of a --plugin")],
) -> None:
    """Check that a method meets the requirements for all methods, and explain each failure.

    Examples:
        tune-calib check-method mine --plugin mine.py
    """
    METHODS.require(name)

    import torch

    from tune_calib.conformance.bench import Bench
    from tune_calib.conformance.suite import results
    from tune_calib.files.store import Store

    # As in trials: the last digits of a head depend on the number of threads.
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("warn")
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for result in results(name, Bench(Store(Path(folder)))):
            echo(str(result))
            counts[result.outcome] += 1
    summary = f"{counts['passed']} checks passed, {counts['failed']} failed"
    if counts["skipped"]:
        summary += f", {counts['skipped']} do not apply"
    echo(f"{METHODS[name].kind} method {name}: {summary}")
    if counts["failed"]:
        raise typer.Exit(1)


def check_gpu(
    backbone: Annotated[str, typer.Option(help="backbone of the networks")] = "resnet18",
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16")] = "tf32",
    batch_size: Annotated[int, typer.Option(min=2, help="images or features a step")] = 128,
) -> None:
    """Check on this GPU, for all methods, whether captured steps equal eager ones and are faster.

    Trainings with network.execution=auto use the results. Attach what it prints to a bug report.

    Examples:
        tune-calib check-gpu
        tune-calib check-gpu --backbone resnet50 --precision bf16
    """
    import torch

    from tune_calib.conformance.bench import Bench, check_methods
    from tune_calib.files.store import Store
    from tune_calib.tuning.progress.screen import screen

    if not torch.cuda.is_available():
        raise UserError(
            f"torch {torch.__version__} finds no GPU: run check-gpu where trials get one, and "
            "install a torch that is built for CUDA"
        )
    rows, refused = [], 0
    with tempfile.TemporaryDirectory() as folder, screen("check-gpu"):
        bench, device = Bench(Store(Path(folder))), torch.device("cuda")
        for method, check in check_methods(backbone, precision, batch_size, bench, device):
            refused += bool(check.refusal)
            outcome = f"refused ({check.refusal})" if check.refusal else "captured"
            row = [method, *(f"{batch_size / s:,.0f}" for s in (check.eager_s, check.captured_s))]
            row += [f"{b / 2**20:,.0f}" for b in (check.eager_bytes, check.captured_bytes)]
            rows.append([*row, f"{check.difference:.1g}", outcome])
    heads = ["method", "eager samples/s", "captured samples/s", "eager MiB", "captured MiB"]
    echo(shown(Text([table_of([*heads, "difference", "auto"], rows)])))
    echo(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {backbone} in {precision}, "
        f"batches of {batch_size}: {len(rows) - refused} methods captured, {refused} refused"
    )
