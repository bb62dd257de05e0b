"""The commands of sweep files: run, schema. The imports stand inside, as in ``cli``."""

import contextlib
import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_calib import plugins
from tune_calib.cli.before import DryRun, tell_settings
from tune_calib.cli.options import known, stoppable
from tune_calib.cli.searches import Retry
from tune_calib.registry import told

if TYPE_CHECKING:
    from tune_calib.places import Place
    from tune_calib.tuning.sweep.run import Ended

GpuModel = Annotated[
    str | None, typer.Option(help="with --dry-run: the hours on this GPU, e.g. A100-80GB")
]
Cluster = Annotated[str | None, typer.Option(help="a Ray cluster, instead of the file's")]


def run(
    file: Annotated[Path, typer.Argument(help="a sweep file; its format: tune-calib schema")],
    dry_run: DryRun = False,
    gpu_model: GpuModel = None,
    address: Cluster = None,
    retry: Retry = None,
) -> None:
    """Carry a sweep file out; what is done already is not done again."""
    from tune_calib.errors import UserError

    if retry is not None:
        known("--retry", retry, ("crashed",))
    if gpu_model is not None and not dry_run:
        raise UserError("--gpu-model is what a --dry-run reckons for; give that too")

    from tune_calib.tuning.dry_run.told import forecast
    from tune_calib.tuning.sweep.file import read_sweep_file
    from tune_calib.tuning.sweep.run import planned_works, run_sweep

    again = _again(file, address)
    with _in_keys():
        read = read_sweep_file(file)
        if address is not None:
            read = read.at_address(address)
        if gpu_model is not None:
            read = read.for_gpu(gpu_model)
        needs_data = not (dry_run and read.content.gpu_model)
        works = planned_works(read, needs_data, dry_run)
        if dry_run:
            typer.echo(forecast(read, works))
            return
        # A list: the generator would do its work outside of what catches the signals.
        ended = stoppable(again, lambda: list(run_sweep(read, works, again, retry, tell_settings)))
        _report(read.out, ended)
    failures = [f"{one.name}: {failure}" for one in ended for failure in one.failures]
    if failures:
        for failure in failures:
            typer.echo(failure, err=True)
        typer.echo(f"{len(failures)} failed; try again: {again} --retry crashed", err=True)
        raise typer.Exit(1)


def _again(file: Path, address: str | None) -> str:
    """The command that goes on with a sweep file."""
    words = ["tune-calib", "run", str(file), *(["--address", address] if address else [])]
    installed = plugins.installed()
    given = [own for own in plugins.in_use() if own not in installed]
    return shlex.join([*words, *(word for own in given for word in ("--plugin", own.where))])


@contextlib.contextmanager
def _in_keys() -> Iterator[None]:
    """Tell a mistake in the keys of the file, and not in options that ``run`` has not."""
    from tune_calib.errors import UserError, as_key

    try:
        yield
    except UserError as error:
        raise UserError(as_key(error)) from None


def _report(out: "Place", ended: Iterable["Ended"]) -> None:
    """Print one report over all folders, and keep it as ``OUT/report.txt``."""
    from tune_calib.cli.folders import tell_overview
    from tune_calib.results import atomic_write

    text = "\n\n".join(f"== {one.name} ==\n{_told(one)}" for one in ended)
    atomic_write(out / "report.txt", f"{text}\n".encode())
    typer.echo(text)
    tell_overview(out)


def _told(ended: "Ended") -> str:
    from analysis.ladder.report import write_report
    from analysis.search.report import write_search_report
    from tune_calib.errors import UserError, as_key
    from tune_calib.tuning.search.summary import summarise

    if ended.is_refused:
        return "; ".join(ended.failures)
    try:
        if ended.found is None:
            return write_report(ended.folder)
        write_search_report(ended.folder)  # its page, which that over all entries leads to
        return summarise(ended.found)
    except UserError as error:
        return "; ".join(ended.failures) or as_key(error)


def schema() -> None:
    """Print the JSON schema of sweep files, for an editor."""
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    typer.echo(json.dumps({**title, **told("schema of sweep files", _schema)}, indent=1))


def _schema() -> dict[str, Any]:
    from tune_calib.tuning.sweep.format import SweepFile

    return SweepFile.model_json_schema()
