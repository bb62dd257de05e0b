"""The command that reproduces papers' tables: reproduce."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from analysis.tables.table import table_of
from tune_calib import console
from tune_calib.cli import defaults
from tune_calib.cli.common import stoppable
from tune_calib.cli.entry import as_option
from tune_calib.cli.options import FORMATS, DryRun, GpuModel, flag
from tune_calib.errors import UserError
from tune_calib.spec.ladder import LADDERS
from tune_calib.spec.reproduction import REPRODUCTIONS, SCALES, ReproduceRequest
from tune_calib.spec.request import format_command
from tune_calib.text import option_words

if TYPE_CHECKING:
    from tune_calib.experiments.file import ReadFile
    from tune_calib.experiments.reproduced import TableRequest
    from tune_calib.tuning.context import Context
    from tune_calib.tuning.plan import Plan


def reproduce(
    request: ReproduceRequest,
    shell: typer.Context,
    gpu_model: GpuModel = None,
    dry_run: DryRun = False,
    is_all: Annotated[bool, flag("--all", "reproduce every table that has the scale")] = False,
    list_: Annotated[bool, flag("--list", "list the tables and start nothing")] = False,
    as_json: Annotated[bool, flag("--json", "with --list: print JSON", FORMATS)] = False,
) -> None:
    """Reproduce tables and figures of papers, and judge the papers' claims.

    Examples:
        tune-calib reproduce --list
        tune-calib reproduce maccal/table5 --scale smoke
        tune-calib reproduce maccal/table5 fedlas/gate --data-root data --dry-run
        tune-calib reproduce --all --scale smoke
    """
    if bool(request.tables) + is_all + list_ != 1:
        raise UserError("give tables as PAPER/TABLE, or --all or --list")
    if as_json and not list_:
        raise UserError("--json applies only to --list; add --list")
    if list_:
        _print_list(as_json)
        return
    if gpu_model is not None and not dry_run:
        raise UserError("--gpu-model applies only to --dry-run; add --dry-run")
    # Before torch is loaded.
    for name in request.tables:
        REPRODUCTIONS.require(name)
    has_scale = {name: request.scale in REPRODUCTIONS[name].scales for name in REPRODUCTIONS}
    if is_all and not all(has_scale.values()):
        without = ", ".join(name for name in has_scale if not has_scale[name])
        console.echo(f"skipped because they have no scale {request.scale}: {without}", err=True)
    names = dict.fromkeys(request.tables or filter(has_scale.get, has_scale))

    from tune_calib.experiments.reproduced import TableRequest

    tables = [TableRequest(REPRODUCTIONS[name], request, gpu_model) for name in names]
    loaded = option_words(("plugin", word) for word in shell.params["plugin"] or ())
    planned = _plan_all(tables, loaded, dry_run)
    failures = []
    for table in planned:
        try:
            failures += _reproduce(table, shell, dry_run)
        except UserError as error:
            if len(planned) == 1:
                raise
            # It must not end hours of work on the other tables.
            failures.append(f"{table.request.table.name}: {as_option(error)}")
            console.echo(failures[-1], err=True)
    if tables and not dry_run:
        from analysis.reproduction.overview import write_overview

        console.echo(f"all tables: {write_overview(tables[0].out)}")
    if failures:
        raise typer.Exit(1)


class _Table(NamedTuple):
    request: "TableRequest"
    file: "ReadFile"
    plans: "list[Plan]"
    command: str


def _plan_all(
    requests: "Sequence[TableRequest]", loaded: Sequence[str], is_dry: bool
) -> list[_Table]:
    """Plan all tables before the first one starts; tables that lack the same share a line."""
    planned, lacking = list[_Table](), defaultdict[str, list[str]](list)
    for request in requests:
        try:
            planned.append(_plan(request, loaded, is_dry))
        except UserError as error:
            if len(requests) == 1:
                raise
            line = as_option(error).removeprefix(f"{request.table.source.path}: ")
            lacking[line].append(request.table.name)
    if lacking:
        lines = "; ".join(f"{line} ({', '.join(names)})" for line, names in lacking.items())
        raise UserError(f"cannot start: {lines}")
    return planned


def _plan(request: "TableRequest", loaded: Sequence[str], is_dry: bool) -> _Table:
    from tune_calib.experiments.entries import plan_entries, refuse_unfit
    from tune_calib.experiments.reproduced import build_file, refuse_lacking, refuse_other

    refuse_lacking(request)
    of_table = request.request.model_copy(update={"tables": (request.table.name,)})
    command = format_command("reproduce", of_table, further=loaded)
    file = build_file(request)
    plans = plan_entries(file, command, needs_data=request.gpu_model is None, is_dry=is_dry)
    if not is_dry:
        refuse_unfit(file, plans)
    refuse_other(request, file, plans)
    return _Table(request, file, plans, command=command)


def _reproduce(table: _Table, shell: typer.Context, dry_run: bool) -> list[str]:
    """Reproduce a table or print the plan; return a line for each crash, already printed."""
    from tune_calib.tuning.plan import describe_file

    file = table.file
    if left_out := table.request.left_out:
        console.echo(f"left out without --weights FOLDER: {', '.join(left_out)}", err=True)
    if dry_run:
        subject = f"{file.name} in {file.out}"
        text = describe_file(subject, table.plans, file.out, file.content.gpu_model)
        console.echo(as_option(console.shown(text)))
        return []
    with stoppable(defaults.format_typed(shell)):
        return _run(table, shell.obj)


def _run(table: _Table, context: "Context") -> list[str]:
    from analysis.report import write_report
    from analysis.reproduction.files import write_reproduction
    from tune_calib.experiments.entries import run_entries
    from tune_calib.experiments.reproduced import store_logits, update_lock

    out, failures, text = table.file.out, list[str](), None
    # Before the first trial, so that a stopped run records its scale.
    update_lock(table.request, out, {}, command=table.command)
    all_ended = run_entries(table.file, table.plans, context)
    for plan, ended in zip(table.plans, all_ended, strict=True):
        failures += [f"{ended.name}: {failure}" for failure in ended.failures]
        if not ended.is_refused:
            failures += store_logits(table.request, plan)
            write_report(ended.folder)
            # After each run, since the next ones may take days.
            done = {plan.name: plan.entry}
            runs, command = update_lock(table.request, out, done, command=table.command)
            text = write_reproduction(table.request.table, out, runs, command=command)
    if text is not None:
        console.echo(console.shown(text))
    for failure in failures:
        console.echo(failure, err=True)
    return failures


def _print_list(as_json: bool) -> None:
    entries: list[dict[str, Any]] = []
    for record in REPRODUCTIONS.values():
        entry: dict[str, Any] = {
            "name": record.name,
            "title": record.title,
            "published": record.published,
            "metrics": list(record.metrics),
            "scales": list(record.scales),
            "claims": [claim.text for claim in record.claims],
            "note": record.note,
            "ladders": [ladder.name for ladder in LADDERS.values() if ladder.table == record.name],
        }
        entries.append(entry)
    if as_json:
        console.echo(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    heads = ["name", "scales", "claims", "title", "metrics"]
    rows: list[list[Any]] = []
    for entry in entries:
        scales, metrics = " ".join(entry["scales"]), ", ".join(entry["metrics"])
        rows.append([entry["name"], scales, len(entry["claims"]), entry["title"], metrics])
        for name in entry["ladders"]:
            rows.append([f"- {name}", "ladder", "", LADDERS[name].title, ""])
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in SCALES.items())
    notes = console.Prose(f"Scales: {meanings}. A ladder below a table runs by: tune-calib ablate.")
    console.echo(console.shown(console.Text([table_of(heads, rows), notes])))
