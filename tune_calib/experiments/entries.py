"""Build the runs of an experiment file from its entries, and run one after the other."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tune_calib.errors import UserError, describe_os_error, find_cause, spell_settings
from tune_calib.experiments.file import ReadFile
from tune_calib.files.paths import AnyPath
from tune_calib.progress import count_progress
from tune_calib.results.selection import BASELINE
from tune_calib.spec.datasets import DATASETS, Settings, flatten
from tune_calib.spec.experiment import Entry, SearchOptions
from tune_calib.spec.ladder import Rung, build_rung, find_keys, refuse_unused
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import merge_settings
from tune_calib.spec.request import (
    AblateRequest,
    CompareRequest,
    ResourcesRequest,
    SearchRequest,
    SeedsRequest,
    build_request,
)
from tune_calib.spec.resolve import resolve, takes_title
from tune_calib.spec.resolved import refuse_large
from tune_calib.spec.yaml_text import Position
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import only_driver
from tune_calib.tuning.ladder import LadderRun, build_ladder_run
from tune_calib.tuning.plan import AnyRun, Plan, Stage, count_batch, execute
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.search.run import SearchRun, build_search_run
from tune_calib.tuning.search.storage import journal_file
from tune_calib.tuning.tuned import plan_tuned
from tune_calib.tuning.work.executor import refuse_here
from tune_calib.tuning.work.jobs import RemainingWork


def plan_entries(
    file: ReadFile,
    command: str = "",
    needs_data: bool = True,
    is_dry: bool = False,
    retry: str | None = None,
) -> list[Plan]:
    """Plan the runs of an experiment file; refuse missing data, if needed."""
    plans, at, data_root = [], file.source.at, file.content.data_root
    entries = build_entries(file, command, retry)
    for entry in count_progress("reading the files of entries", entries, len(entries)):
        run, position = entry.run, entry.position
        with at(("data_root",)):
            if needs_data:
                DATASETS[run.resolved.overrides["data"]["dataset"]].locate(data_root)
        with at(position):
            run = run.read_files(is_dry).choose_gpus()
        if isinstance(run, SearchRun):
            with at(("out",)):
                if run.location.study_storage is None:
                    journal_file(file.out)
        elif needs_data:
            with at(file.position_of(entry.entry, "shift")):
                run.check()
        with at(position):
            stages: tuple[Stage, ...] = (Stage(run, run.plan(needs_data)),)
            request = getattr(run, "options", None)
            if isinstance(request, CompareRequest) and request.tune is not None:
                assert isinstance(run, LadderRun)
                stages = plan_tuned(run, request).stages
            plans.append(replace(entry, stages=stages))
    return plans


def build_entries(file: ReadFile, command: str = "", retry: str | None = None) -> list[Plan]:
    """List the runs of an experiment file in its order, without the files they name and work."""
    rungs_of_file: list[Rung] = []
    datasets: list[str] = []
    for name, entry in file.content.entries.items():
        names = [method.method for method in entry.methods]
        rungs = _list_rungs(names) if names else entry.build_ladder().rungs
        rungs_of_file += rungs
        datasets += file.value_of(entry, "datasets")
        with file.source.at(("entries", name)):
            refuse_unused(rungs, entry.set.by_slot())
    with file.source.at(()):
        refuse_unused(rungs_of_file, file.content.set.by_slot())
    if file.content.dataset_title is not None and not any(map(takes_title, datasets)):
        message = "applies only to your own images or an import, and no entry uses these; remove it"
        raise file.source.error(("dataset_title",), message)
    plans: list[Plan] = []
    for name in file.content.entries:
        for position, run, hours in _build_entry(file, name, command, retry=retry):
            plan = Plan((Stage(run, RemainingWork()),), position, hours)
            if any(other.name == plan.name for other in plans):
                message = f"two runs would have the folder {plan.name!r}; rename an entry"
                raise file.source.error(position, message)
            plans.append(plan)
    return plans


def _build_entry(
    file: ReadFile, name: str, command: str, retry: str | None
) -> Iterator[tuple[Position, AnyRun, float | None]]:
    entry = file.content.entries[name]
    position: Position = ("entries", name)
    ladder = None
    if entry.search is None:
        for index, method in enumerate(entry.methods):
            with file.source.at((*position, "methods", index)):
                build_rung(method.method, method.set.by_slot(), "variant")
        with file.source.at((*position, "methods")):
            ladder = entry.build_ladder()
    for dataset, backbone in file.combinations(entry):
        suffix = "-".join(filter(None, [dataset, backbone]))
        values = {**_list_values(file, entry), "dataset": dataset, "backbone": backbone}
        if not takes_title(dataset):  # another data set of the file may
            values.pop("dataset_title", None)
        if ladder is not None:
            with file.source.at(position):
                values["out"] = str(file.out / f"{name}-{suffix}")
                values["set"] = _list_settings(file, entry, ladder.rungs)
                request = build_request(entry.request_model, values)
                assert isinstance(request, AblateRequest | CompareRequest)
                ladder_run = build_ladder_run(
                    request, ladder, resolve(request), command=command, among=file.among
                )
                _ = ladder_run.planned_trials  # refuses settings that do not fit
            yield position, ladder_run, None
            continue
        assert entry.search is not None
        for index, method in enumerate(entry.methods):
            position_of_method = (*position, "methods", index)
            with file.source.at(position_of_method):
                rungs, settings = _list_rungs([method.method]), method.set.by_slot()
                values |= {"method": method.method, "retry": retry}
                values["out"] = str(file.out / f"{name}-{method.method}-{suffix}")
                values["set"] = _list_settings(file, entry, rungs, of_method=settings)
                search_run = _build_search(entry.search, values, command)
            yield position_of_method, search_run, entry.search.hours


def _list_values(file: ReadFile, entry: Entry) -> dict[str, Any]:
    """Return the request fields that the file, the entry and its search set; later ones win."""
    values: dict[str, Any] = {}
    for part in filter(None, (file.content, entry, entry.search)):
        for key in part.model_fields_set:
            value = getattr(part, key)
            if isinstance(value, SeedsRequest | ResourcesRequest):
                values |= dict(value)
            else:
                values[key] = value
    values |= {"store": str(file.store), "methods": [method.method for method in entry.methods]}
    return {key: value for key, value in values.items() if key in entry.request_model.model_fields}


def _list_settings(
    file: ReadFile, entry: Entry, rungs: Sequence[Rung], of_method: Settings | None = None
) -> dict[str, Any]:
    settings: dict[str, dict[str, Any]] = {}
    for slot, keys in merge_settings(file.content.set.by_slot(), entry.set.by_slot()).items():
        allowed = find_keys(rungs, slot)
        settings[slot] = {key: value for key, value in keys.items() if key in allowed}
    return flatten(merge_settings(settings, of_method or {}))


def _build_search(options: SearchOptions, values: dict[str, Any], command: str) -> SearchRun:
    """Build a search; with a budget in hours, it has the length of its first batch."""
    request = build_request(SearchRequest, values)
    run = build_search_run(request, resolve(request), command)
    pairs, candidates = len(run.resolved.seeds.pairs()), run.definition.candidates
    if options.heads is not None:
        if candidates.kind != "head":
            raise UserError(f"{request.method} trains no heads; give the budget in trials or hours")
        run = replace(run, length=max(1, options.heads // pairs))
    elif options.hours is not None:
        run = replace(run, length=count_batch(run))
    refuse_large(max(run.length * pairs, options.heads or 0))
    return run


def _list_rungs(pipelines: Sequence[str]) -> list[Rung]:
    methods = [METHODS[part] for part in sorted(set("+".join(pipelines).split("+")))]
    rungs = [Rung(BASELINE, "")]
    for method in methods:
        rungs.append(Rung(method.name, "", {method.kind: {"method": method.name}}))
    return rungs


@dataclass(frozen=True)
class Ended:
    """A ladder or search of an experiment file that has ended."""

    name: str  # of its folder
    folder: AnyPath
    failures: list[str]  # a line for each crashed job, or for the error that ended the run
    stopped: str | None = None  # what a limit of time left undone; None after an error
    is_refused: bool = False  # by a user error, e.g. because its folder belongs to another run


def run_entries(file: ReadFile, plans: Sequence[Plan], context: Context) -> Iterator[Ended]:
    """Run the entries of an experiment file; one that fails does not stop the others."""
    refuse_unfit(file, plans)
    with only_driver(file.out), show_driver(file.out, context.view.tracker):
        for number, plan in enumerate(plans, start=1):
            context.view.tracker.set(entry=f"{plan.name}, {number} of {len(plans)}")
            folder = plan.run.location.out
            try:
                result = execute(plan, context)
                failures = list(map(spell_settings, result.crashed))
                yield Ended(plan.name, folder, failures, result.stopped)
            except UserError as error:
                yield Ended(plan.name, folder, [spell_settings(error)], is_refused=True)
            except Exception as error:
                reason = None
                if isinstance(error, OSError):
                    reason = describe_os_error(error)
                if reason is None:
                    # A bug in one entry must not stop the others, which may take hours.
                    traceback.print_exc()
                    reason = find_cause(f"{type(error).__name__}: {error}")
                yield Ended(plan.name, folder, [reason])


def refuse_unfit(file: ReadFile, plans: Sequence[Plan]) -> None:
    """Refuse runs that need a cluster or resources that this machine lacks."""
    for plan in plans:
        with file.source.at(plan.position):
            for stage in plan.stages:
                refuse_here(file.content.address, stage.work.needs)
