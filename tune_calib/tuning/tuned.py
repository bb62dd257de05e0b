"""Compare methods at their published settings and at settings that equal searches have chosen.

All searches end before the first trial is evaluated on ``test``. They use seeds of their own, so
that the trials of the comparison are those of the same comparison without searches.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

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
from tune_calib.spec.resolved import Seeds
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


def is_tuned(run: AnyRun) -> TypeGuard[LadderRun]:
    """Return whether a run is a comparison whose methods are tuned."""
    options = getattr(run, "options", None)
    return isinstance(options, CompareRequest) and options.tune is not None


def execute_tuned(run: AnyRun, begin: Begin = lambda run: None) -> Result:
    """Complete a run; of a tuned comparison the searches first, and then the comparison."""
    if not is_tuned(run):
        return execute_run(run, begin)
    comparison, searches = prepare(run)
    old = _read_manifest(comparison)
    records = {method.label: method for method in old.methods} if old else {}
    new = [label for label in searches if label not in records]
    with screen() as view:
        for number, label in enumerate(new, start=1):
            view.tracker.set(entry=f"{label}, {number} of {len(new)} methods to tune")
            records[label] = _tune(label, searches[label], begin)
        view.tracker.set(entry="")
    manifest = _build_manifest(comparison, old, records)
    manifest.write(comparison.location.out)  # before the test split is read
    for method in manifest.methods:
        _close_search(searches[method.label], method, manifest)
    return execute_run(_add_tuned_rungs(comparison, manifest.methods), begin)


def list_runs(run: AnyRun) -> list[AnyRun]:
    """List the searches of a tuned comparison and the comparison, for a forecast; or the run.

    Tuned settings are not known yet: others of the space stand for them.
    """
    if not is_tuned(run):
        return [run]
    comparison, searches = prepare(run)
    methods = []
    for label, search in searches.items():
        published, tuned = dict[str, Choice](), None
        if search is not None:
            published, tuned = _find_other_point(search.definition.candidates)
        methods.append(TunedMethod(label=label, published=published, tuned=tuned))
    return [*filter(None, searches.values()), _add_tuned_rungs(comparison, methods)]


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


def prepare(run: LadderRun) -> tuple[LadderRun, dict[str, SearchRun | None]]:
    """Return the comparison at published settings and the search of each method, by label.

    A method without settings to search has no search. Refuse as much as possible beforehand.
    """
    request = _get_request(run)
    name = f"compare with tune={request.tune}"
    for key in ("metric", "guard"):
        if (value := getattr(request, key)) != CompareRequest.model_fields[key].default:
            name += f" {key}={value}"
    budget = format_count(request.tune or 0, "suggestion")
    metric = METRICS[request.metric].title
    title = f"Methods at published settings and tuned by {budget} each for {metric} on select"
    run = replace(run, ladder=replace(run.ladder, name=name, title=title))
    data = run.planned_trials[0].spec.data  # also refuses settings that do not fit
    DATASETS[data.dataset].locate(run.location.data_root)
    run.check()
    searches, parts = {}, [TUNED]
    for rung in select_rungs(run.ladder, run.resolved):
        search = searches[rung.label] = _build_search(run, rung)
        if search is not None:
            search.check()
            _refuse_longer(search)
            parts.append(search.out.name)
    run = replace(run, parts=tuple(parts))
    _refuse_other(run, searches)
    return run, searches


def _get_request(run: LadderRun) -> CompareRequest:
    assert isinstance(run.options, CompareRequest)
    return run.options


def _build_search(run: LadderRun, rung: Rung) -> SearchRun | None:
    """Build the search of a method, whose fixed settings are those of the request and its own."""
    definition = replace(_define_search(run, rung), sampler="tpe")
    if not rung.slots or not restrict_space(definition.method, definition.resolved, {}).settings:
        return None
    journal_file(run.location.out)  # refuses a URL, where no journal can be
    folder = "search-" + re.sub(r"[^\w.+=-]+", "-", rung.label)
    location = replace(run.location, out=run.location.out / folder, profile=False, among=None)
    length = _get_request(run).tune or 0
    return SearchRun(definition, length, location, count_at_once(definition, location))


def _define_search(run: LadderRun, rung: Rung) -> SearchDefinition:
    """Define the search of a method: with its own settings, without those of other methods."""
    request, settings = _get_request(run), dict[str, Settings]()
    for slot, values in run.resolved.overrides.items():
        keys = find_keys([rung, Rung(BASELINE, "")], slot)
        settings[slot] = {key: value for key, value in values.items() if key in keys}
    names = []
    for slot, values in rung.slots.items():
        if "method" in values:
            names.append(values["method"])
        fixed = {key: value for key, value in values.items() if key != "method"}
        settings[slot] = {**settings.get(slot, {}), **fixed}
    resolved = replace(run.resolved, overrides=merge_settings(settings), seeds=_SEEDS)
    pipeline = "+".join(names) or "ce"  # the unchanged network of ``--all``
    return SearchDefinition(pipeline, resolved, Objective((request.metric,), request.guard))


def _refuse_longer(search: SearchRun) -> None:
    """Refuse a search that has more suggestions than those of other methods get."""
    manifest = find_manifest(search.out)
    if manifest is not None and manifest.trials > search.length:
        raise UserError(
            f"{search.out} has {manifest.trials} suggestions, more than `tune`; name another `out`"
        )


def _refuse_other(run: LadderRun, labels: Iterable[str]) -> None:
    """Refuse the folder of another run, and a command that leaves out methods of this one."""
    out, identity = run.location.out, run.new_manifest.sweep
    old, tuned = find_run_manifest(out), _read_manifest(run)
    if old is not None and old.sweep != identity:
        why = explain_other_recipe(old, run.new_manifest)
        raise build_foreign_error(out, "run", old.command, why=why)
    if tuned is None:
        refuse_foreign(out, *run.parts)
        return
    if tuned.sweep != identity:
        raise build_foreign_error(out, "tuned comparison", tuned.reads[0].command)
    for method in tuned.methods:
        if method.label not in labels:
            raise UserError(
                f"{out} also compares {method.label}; name its methods, and new ones behind them"
            )


def _read_manifest(run: LadderRun) -> TunedManifest | None:
    if (run.location.out / TUNED).exists():
        return TunedManifest.read(run.location.out)
    return None


def _tune(label: str, search: SearchRun | None, begin: Begin) -> TunedMethod:
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
    run: LadderRun, old: TunedManifest | None, records: Mapping[str, TunedMethod]
) -> TunedManifest:
    """Build the manifest before test is read, with a further read unless it repeats the last."""
    request, seeds = _get_request(run), run.resolved.seeds
    rungs = {rung.label: rung for rung in run.ladder.rungs}
    methods = []
    for label, record in records.items():
        definition = _define_search(run, rungs[label])
        resolved = replace(definition.resolved, seeds=seeds)
        definition = replace(definition, resolved=resolved)
        command = format_choice(definition, run.location, record.tuned or {})
        methods.append(record.model_copy(update={"command": command}))
    reads, count = list(old.reads) if old else [], len(seeds.pairs())
    if not reads or len(methods) > len(reads[-1].methods) or count > reads[-1].seeds:
        command = run.location.command
        reads.append(ReadRecord(seeds=count, command=command, methods=list(records)))
    return TunedManifest(
        version=VERSION,
        sweep=run.new_manifest.sweep,
        suggestions=request.tune or 0,
        metric=request.metric,
        rule=Objective((request.metric,), request.guard).describe_rule(),
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
