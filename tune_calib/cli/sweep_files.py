"""The commands of experiment files: run, schema."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.cli.common import DryRun, GpuModel, print_settings, run_stoppable, write_overview
from tune_calib.cli.entry import as_option
from tune_calib.cli.request import with_request
from tune_calib.console import echo, shown
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.spec import plugins
from tune_calib.spec.request import RunRequest, format_command

if TYPE_CHECKING:
    from tune_calib.experiments.run import Ended


def _print_schema(is_wanted: bool) -> None:
    if is_wanted:
        schema()
        raise typer.Exit


@with_request(RunRequest)
def run(
    request: RunRequest,
    dry_run: DryRun = False,
    gpu_model: GpuModel = None,
    print_schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="print the JSON schema of experiment files, for an editor, and exit",
            is_eager=True,
            callback=_print_schema,
        ),
    ] = False,
) -> None:
    """Run all entries of an experiment file, skipping finished trials.

    Examples:
        tune-calib run sweep.yaml --dry-run
        tune-calib run sweep.yaml
        tune-calib run sweep.yaml --address auto --retry crashed
    """
    refuse_gpu_model(gpu_model, dry_run)

    from tune_calib.experiments.file import read_experiment_file

    again = format_command("run", request, ("retry",), plugins.as_options())
    with _in_keys():
        read = read_experiment_file(request.file).override(request.address, gpu_model)

        from tune_calib.experiments.entries import plan_jobs
        from tune_calib.experiments.forecast.summary import describe_dry_runs
        from tune_calib.experiments.run import run_jobs

        needs_data = not (dry_run and read.content.gpu_model)
        jobs = plan_jobs(read, again, needs_data, dry_run)
        if dry_run:
            echo(as_option(shown(describe_dry_runs(read, jobs))))
            return
        # A list: the generator would do its work outside of what catches the signals.
        ended = run_stoppable(
            again, lambda: list(run_jobs(read, jobs, request.retry, print_settings))
        )
        _report(read.out, ended)
    failures = [f"{one.name}: {failure}" for one in ended for failure in one.failures]
    if failures:
        for failure in failures:
            echo(failure, err=True)
        echo(f"{len(failures)} failed; run them again: {again} --retry crashed", err=True)
        raise typer.Exit(1)


@contextlib.contextmanager
def _in_keys() -> Iterator[None]:
    """Spell settings in messages as keys of the file."""
    try:
        yield
    except UserError as error:
        from tune_calib.spec.experiment import spell_keys

        raise UserError(spell_keys(error)) from None


def _report(out: AnyPath, ended: Iterable["Ended"]) -> None:
    """Print one report over all folders, and write it to ``OUT/report.txt``."""
    from tune_calib.paths import atomic_write

    parts = [(f"== {one.name} ==", _described(one)) for one in ended]
    # The file holds every column, whatever the terminal has room for.
    text = "\n\n".join(f"{name}\n{described}" for name, described in parts)
    atomic_write(out / "report.txt", f"{text}\n".encode())
    echo("\n\n".join(f"{name}\n{shown(described)}" for name, described in parts))
    echo("\n".join(["", *write_overview(out)]))


def _described(ended: "Ended") -> str:
    from analysis.ladder.report import write_report
    from analysis.search.report import write_search_report
    from tune_calib.spec.experiment import spell_keys
    from tune_calib.tuning.search.outcome import summarise

    if ended.is_refused:
        return "; ".join(ended.failures)
    try:
        if ended.found is None:
            return write_report(ended.folder)
        write_search_report(ended.folder)  # its page, which that over all entries leads to
        return summarise(ended.found)
    except UserError as error:
        return "; ".join(ended.failures) or spell_keys(error)


def schema() -> None:
    """Print the JSON schema of experiment files, for an editor.

    Examples:
        tune-calib schema > sweep.schema.json
    """
    from tune_calib.spec.experiment import ExperimentFile

    title = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    echo(json.dumps({**title, **ExperimentFile.model_json_schema()}, indent=1))


def refuse_gpu_model(gpu_model: str | None, is_dry: bool) -> None:
    """Refuse ``--gpu-model`` where nothing is estimated."""
    if gpu_model is not None and not is_dry:
        raise UserError("--gpu-model is used by --dry-run alone; add --dry-run")
