"""Compare methods at their published settings and at settings that equal searches have chosen.

All searches end before the first trial is evaluated on ``test``. They use seeds of their own, so
that the trials of the comparison are those of the same comparison without searches.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.results.folders import find_run_manifest
from tune_calib.results.manifests import (
    VERSION,
    ReadRecord,
    SearchEvaluated,
    TunedManifest,
    TunedMethod,
)
from tune_calib.results.selection import BASELINE
from tune_calib.spec.datasets import DATASETS, Settings
from tune_calib.spec.ladder import Rung, find_keys, select_rungs
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import TUNED
from tune_calib.spec.recipe import by_slot, merge_settings
from tune_calib.spec.request import CompareRequest
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.space import Choice
from tune_calib.text import format_count
from tune_calib.tuning.folder import (
    build_foreign_error,
    explain_other_recipe,
    refuse_foreign,
    spent_s,
)
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.progress.screen import screen
from tune_calib.tuning.run import AnyRun, Begin, Result, execute_run
from tune_calib.tuning.search.definition import (
    Candidates,
    Objective,
    SearchDefinition,
    restrict_space,
)
from tune_calib.tuning.search.manifest import find_manifest
from tune_calib.tuning.search.outcome import format_choice
from tune_calib.tuning.search.run import SearchRun, count_at_once
from tune_calib.tuning.search.storage import journal_file

_SEEDS = Seeds((1000,), (1000,), is_paired=True)
"""The seeds of each suggestion; those of the comparison begin at 0."""


def find_tuning(run: AnyRun) -> CompareRequest | None:
    """Return the request of a comparison whose methods are tuned; None for any other run."""
    options = getattr(run, "options", None)
    if isinstance(options, CompareRequest) and options.tune is not None:
        return options
    return None


def execute_tuned(run: AnyRun, begin: Begin = lambda run: None) -> Result:
    """Complete a run; of a tuned comparison the searches first, and then the comparison."""
    request = find_tuning(run)
    if request is None or not isinstance(run, LadderRun):
        return execute_run(run, begin)
    run, searches = prepare(run, request)
    old = _read_manifest(run)
    records = {}
    if old is not None:
        records = {method.label: method for method in old.methods}
    new = [label for label in searches if label not in records]
    for number, label in enumerate(new, start=1):
        with screen() as view:
            view.tracker.set(entry=f"{label}, {number} of {len(new)} methods to tune")
            records[label] = _tune(run, label, searches[label], begin)
    with screen() as view:
        view.tracker.set(entry="")
    manifest = _build_manifest(run, request, old=old, records=records, searches=searches)
    manifest.write(run.location.out)  # before the test split is read
    for method in manifest.methods:
        _close_search(searches[method.label], method, manifest)
    return execute_run(_add_tuned_rungs(run, manifest.methods), begin)


def list_runs(run: AnyRun) -> list[AnyRun]:
    """List the searches of a tuned comparison and the comparison, for a forecast; or the run.

    Tuned settings are not known yet: others of the space stand for them.
    """
    request = find_tuning(run)
    if request is None or not isinstance(run, LadderRun):
        return [run]
    run, searches = prepare(run, request)
    methods = []
    for label, search in searches.items():
        published, tuned = dict[str, Choice](), None
        if search is not None:
            published, tuned = _find_other_point(search.definition.candidates)
        methods.append(TunedMethod(label=label, published=published, tuned=tuned))
    return [*filter(None, searches.values()), _add_tuned_rungs(run, methods)]


def _find_other_point(
    candidates: Candidates,
) -> tuple[dict[str, Choice], dict[str, Choice] | None]:
    """Return the published settings of a method, and others of its space."""
    published = candidates.space.active(candidates.defaults)
    for name, setting in candidates.space.settings.items():
        for level in setting.levels():
            point = candidates.space.active({**published, name: level})
            if point != published:
                return published, point
    return published, None


def prepare(
    run: LadderRun, request: CompareRequest
) -> tuple[LadderRun, dict[str, SearchRun | None]]:
    """Return the comparison at published settings and the search of each method, by label.

    A method without settings to search has no search. Refuse as much as possible beforehand.
    """
    name = f"compare --tune {request.tune}"
    for key in ("metric", "guard"):
        if (value := getattr(request, key)) != CompareRequest.model_fields[key].default:
            name += f" --{key} {value}"
    budget = format_count(request.tune or 0, "suggestion")
    metric = METRICS[request.metric].title
    title = f"Methods at published settings and tuned by {budget} each for {metric} on select"
    run = replace(run, ladder=replace(run.ladder, name=name, title=title))
    data = run.planned_trials[0].spec.data  # also refuses settings that do not fit
    DATASETS[data.dataset].locate(run.location.data_root)
    run.check()
    searches = {}
    for rung in select_rungs(run.ladder, run.resolved):
        searches[rung.label] = _build_search(run, rung, request)
    parts = [TUNED]
    for search in filter(None, searches.values()):
        search.check()
        parts.append(search.out.name)
    run = replace(run, parts=tuple(parts))
    _refuse_other(run, request, searches)
    return run, searches


def _build_search(run: LadderRun, rung: Rung, request: CompareRequest) -> SearchRun | None:
    """Build the search of a method, whose fixed settings are those of the request and its own."""
    pipeline = _name_pipeline(rung)
    resolved = replace(_fix_settings(run.resolved, rung), seeds=_SEEDS)
    if not pipeline or not restrict_space(pipeline, resolved, {}).settings:
        return None
    journal_file(run.location.out)  # refuses a URL, where no journal can be
    folder = "search-" + re.sub(r"[^\w.+=-]+", "-", rung.label)
    definition = SearchDefinition(
        pipeline, resolved, Objective((request.metric,), request.guard), sampler="tpe"
    )
    location = replace(run.location, out=run.location.out / folder, profile=False, among=None)
    at_once = count_at_once(definition, location)
    return SearchRun(definition, request.tune or 0, location, at_once)


def _name_pipeline(rung: Rung) -> str:
    """Return the pipeline of a rung; "" for the unchanged network of ``--all``."""
    return "+".join(slot["method"] for slot in rung.slots.values() if "method" in slot)


def _fix_settings(resolved: ResolvedRequest, rung: Rung) -> ResolvedRequest:
    """Return the request of a method alone: with its own settings, without those of others."""
    settings: dict[str, Settings] = {}
    for slot, values in resolved.overrides.items():
        keys = find_keys([rung, Rung(BASELINE, "")], slot)
        settings[slot] = {key: value for key, value in values.items() if key in keys}
    fixed = {}
    for slot, values in rung.slots.items():
        fixed[slot] = {key: value for key, value in values.items() if key != "method"}
    return replace(resolved, overrides=merge_settings(settings, fixed))


def _refuse_other(
    run: LadderRun, request: CompareRequest, searches: Mapping[str, SearchRun | None]
) -> None:
    """Refuse the folder of another run, other budgets, and a command that leaves methods out."""
    out, old, tuned = run.location.out, find_run_manifest(run.location.out), _read_manifest(run)
    if old is not None and old.sweep != run.new_manifest.sweep:
        why = explain_other_recipe(old, run.new_manifest)
        raise build_foreign_error(out, "run", old.command, why=why)
    if tuned is None and old is None:
        refuse_foreign(out, *run.parts)
    if tuned is not None:
        if (tuned.suggestions, tuned.metric, tuned.guard) != (
            request.tune,
            request.metric,
            request.guard,
        ):
            raise build_foreign_error(out, "tuned comparison", tuned.reads[0].command)
        for method in tuned.methods:
            if method.label not in searches:
                raise UserError(
                    f"{out} also compares {method.label}; name its methods, and new ones behind"
                )
    for search in filter(None, searches.values()):
        manifest = find_manifest(search.out)
        if manifest is not None and manifest.trials > search.length:
            raise UserError(
                f"{search.out} has {manifest.trials} suggestions, more than `tune`; name another "
                "`out`"
            )


def _read_manifest(run: LadderRun) -> TunedManifest | None:
    if (run.location.out / TUNED).exists():
        return TunedManifest.read(run.location.out)
    return None


def _tune(run: LadderRun, label: str, search: SearchRun | None, begin: Begin) -> TunedMethod:
    """Complete the search of a method, and record what it has chosen."""
    if search is None:
        return TunedMethod(label=label)
    result = execute_run(search, begin)
    if result.crashed:
        count = format_count(len(result.crashed), "trial")
        echo(f"{search.out}: {count} crashed; first: {result.crashed[0]}", err=True)
    state = result.state
    chosen = state.objective.choose(state.results)
    space = search.definition.candidates.space
    published = space.active(search.definition.candidates.defaults)
    tuned, value = None, None
    if chosen is not None:
        tuned = dict(state.study.suggestion(chosen).point)
        value = state.results[chosen].values[0]
    first = state.results[0]  # at the published settings
    return TunedMethod(
        label=label,
        folder=search.out.name,
        searched=list(space.settings),
        suggestions=len(state.results),
        chosen=chosen,
        published=published,
        tuned=tuned,
        published_value=next(iter(first.values), None),
        tuned_value=value,
        is_within=0 in state.objective.within_guard(state.results),
        cost_s=spent_s(search.out),
    )


def _build_manifest(
    run: LadderRun,
    request: CompareRequest,
    old: TunedManifest | None,
    records: Mapping[str, TunedMethod],
    searches: Mapping[str, SearchRun | None],
) -> TunedManifest:
    """Build the manifest before test is read, with a further read unless it repeats the last."""
    objective = Objective((request.metric,), request.guard)
    rungs = {rung.label: rung for rung in run.ladder.rungs}
    methods = []
    for label, record in records.items():
        resolved = replace(_fix_settings(run.resolved, rungs[label]), seeds=run.resolved.seeds)
        definition = SearchDefinition(_name_pipeline(rungs[label]) or "ce", resolved, objective)
        command = format_choice(definition, run.location, record.tuned or {})
        methods.append(record.model_copy(update={"command": command}))
    reads = list(old.reads) if old is not None else []
    seeds = len(run.resolved.seeds.pairs())
    if not reads or len(methods) > len(reads[-1].methods) or seeds > reads[-1].seeds:
        command = run.location.command
        reads.append(ReadRecord(seeds=seeds, command=command, methods=list(records)))
    return TunedManifest(
        version=VERSION,
        suggestions=request.tune or 0,
        metric=request.metric,
        guard=request.guard,
        rule=objective.describe_rule(),
        methods=methods,
        reads=reads,
    )


def _close_search(search: SearchRun | None, method: TunedMethod, manifest: TunedManifest) -> None:
    """Record in the folder of a search that its choice is evaluated on test, which ends it."""
    if search is not None and method.chosen is not None:
        SearchEvaluated(
            version=VERSION,
            trial=method.chosen,
            settings=method.tuned or {},
            rule=manifest.rule,
            reads=manifest.reads,
        ).write(search.out)


def _add_tuned_rungs(run: LadderRun, methods: Sequence[TunedMethod]) -> LadderRun:
    """Add a rung behind that of each method whose chosen settings are not the published ones."""
    rungs_of_run = {rung.label: rung for rung in run.ladder.rungs}
    rungs: list[Rung] = []
    for method in methods:
        rung = rungs_of_run.pop(method.label)
        rungs.append(rung)
        if method.tuned not in (None, method.published):
            slots = merge_settings(rung.slots, by_slot(method.tuned or {}))
            label = f"{rung.label} tuned"
            rungs.append(replace(rung, label=label, slots=slots, kind="variant"))
    # Those that cannot be run are left out again, and named in captions.
    rungs += rungs_of_run.values()
    return replace(run, ladder=replace(run.ladder, rungs=tuple(rungs)))
