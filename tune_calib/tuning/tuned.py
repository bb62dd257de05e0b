"""Compare methods at their published settings and at settings that equal searches have chosen.

All searches end before the first trial is evaluated on ``test``. They use seeds of their own, so
that the trials of the comparison are those of the same comparison without searches.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeGuard

from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.folders import find_run_manifest
from tune_calib.results.manifests import (
    VERSION,
    ReadRecord,
    SearchEvaluated,
    TunedManifest,
    TunedMethod,
)
from tune_calib.results.selection import BASELINE
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import Rung, find_keys, select_rungs
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import TUNED
from tune_calib.spec.recipe import by_slot, merge_settings
from tune_calib.spec.request import CompareRequest
from tune_calib.spec.resolved import Seeds
from tune_calib.spec.space import Choice
from tune_calib.text import format_count
from tune_calib.tuning.folder import build_foreign_error, explain_other_recipe, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.progress.screen import screen
from tune_calib.tuning.run import AnyRun, Begin, Result, execute_run
from tune_calib.tuning.search.definition import (
    Candidates,
    Objective,
    SearchDefinition,
    restrict_space,
)
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
    comparison, searches, manifest = prepare(run)
    methods = {method.label: method for method in manifest.methods}
    new = [label for label in searches if label not in methods]
    with screen() as view:
        for number, label in enumerate(new, start=1):
            view.tracker.set(entry=f"{label}, {number} of {len(new)} methods to tune")
            methods[label] = _tune(label, searches[label], begin)
        view.tracker.set(entry="")
    manifest = _add_read(comparison, manifest, methods.values())
    return execute_run(
        _add_tuned_rungs(comparison, manifest.methods),
        begin,
        record=lambda: _write_read(comparison.location.out, manifest),
    )


def _write_read(out: AnyPath, manifest: TunedManifest) -> None:
    """Write that the test split is read for the choices of the searches."""
    manifest.write(out)
    for method in manifest.methods:
        if method.chosen is not None:  # the evaluation of its choice ends a search
            evaluated = SearchEvaluated(
                version=VERSION,
                trial=method.chosen,
                settings=method.tuned or {},
                rule=manifest.rule,
                reads=manifest.reads,
            )
            evaluated.write(out / method.folder)


def list_runs(run: AnyRun) -> list[AnyRun]:
    """List the searches of a tuned comparison and the comparison, for a forecast; or the run.

    Tuned settings are not known yet: others of the space stand for them.
    """
    if not is_tuned(run):
        return [run]
    comparison, searches, _ = prepare(run)
    methods = []
    for label, search in searches.items():
        tuned = None
        if search is not None:
            tuned = _find_other_point(search.definition.candidates)
        methods.append(TunedMethod(label=label, tuned=tuned))
    return [*filter(None, searches.values()), _add_tuned_rungs(comparison, methods)]


def _find_other_point(candidates: Candidates) -> dict[str, Choice] | None:
    """Find settings that differ from the published ones; None if the space has no others."""
    published = candidates.space.active(candidates.defaults)
    for name, setting in candidates.space.settings.items():
        for level in setting.levels():
            point = candidates.space.active({**published, name: level})
            if point != published:
                return point
    return None


def prepare(run: LadderRun) -> tuple[LadderRun, dict[str, SearchRun | None], TunedManifest]:
    """Return the comparison at published settings, the search of each method, and the manifest.

    A method without settings to search has no search. Refuse as much as possible beforehand.
    """
    request = _get_request(run)
    name = f"compare with tune={request.tune} metric={request.metric} guard={request.guard}"
    budget = format_count(request.tune or 0, "suggestion")
    metric = METRICS[request.metric].title
    title = f"Methods at published settings and tuned by {budget} each for {metric} on select"
    run = replace(run, ladder=replace(run.ladder, name=name, title=title))
    data = run.planned_trials[0].spec.data  # also refuses settings that do not fit
    DATASETS[data.dataset].locate(run.location.data_root)
    run.check()
    manifest = _read_manifest(run)
    tuned = {method.label for method in manifest.methods}
    searches, parts = {}, [TUNED]
    for rung in select_rungs(run.ladder, run.resolved):
        search = searches[rung.label] = _build_search(run, rung)
        if search is not None:
            parts.append(search.out.name)
            if rung.label not in tuned:
                search.check()
                if search.build_manifest().trials > search.length:
                    raise UserError(
                        f"{search.out} has more suggestions than `tune`; name another `out`"
                    )
    run = replace(run, parts=tuple(parts))
    _refuse_other(run, searches, manifest)
    return run, searches, manifest


def _get_request(run: LadderRun) -> CompareRequest:
    assert isinstance(run.options, CompareRequest)
    return run.options


def _read_manifest(run: LadderRun) -> TunedManifest:
    """Read what was tuned and evaluated before; nothing in a new folder."""
    if (run.location.out / TUNED).exists():
        return TunedManifest.read(run.location.out)
    request = _get_request(run)
    return TunedManifest(
        version=VERSION,
        sweep=run.new_manifest.sweep,
        suggestions=request.tune or 0,
        metric=request.metric,
        rule=Objective((request.metric,), request.guard).describe_rule(),
        methods=[],
        reads=[],
    )


def _build_search(run: LadderRun, rung: Rung) -> SearchRun | None:
    """Build the search of a method, whose fixed settings are those of the request and its own."""
    definition = _define_search(run, rung, _SEEDS)
    if not rung.slots or not restrict_space(definition.method, definition.resolved, {}).settings:
        return None
    journal_file(run.location.out)  # refuses a URL, where no journal can be
    folder = "search-" + re.sub(r"[^\w.+=-]+", "-", rung.label)
    location = replace(run.location, out=run.location.out / folder, profile=False, among=None)
    length = _get_request(run).tune or 0
    return SearchRun(definition, length, location, count_at_once(definition, location))


def _define_search(run: LadderRun, rung: Rung, seeds: Seeds) -> SearchDefinition:
    """Define the search of a method: with its own settings, without those of other methods."""
    settings = {}
    for slot, values in merge_settings(run.resolved.overrides, rung.slots).items():
        keys = find_keys([rung, Rung(BASELINE, "")], slot) - {"method"}
        settings[slot] = {key: value for key, value in values.items() if key in keys}
    names = [slot["method"] for slot in rung.slots.values() if "method" in slot]
    request = _get_request(run)
    return SearchDefinition(
        "+".join(names) or "ce",  # the unchanged network of ``--all``
        replace(run.resolved, overrides=merge_settings(settings), seeds=seeds),
        Objective((request.metric,), request.guard),
    )


def _refuse_other(run: LadderRun, labels: Iterable[str], manifest: TunedManifest) -> None:
    """Refuse the folder of another run, and a command that leaves out methods of this one."""
    out, new = run.location.out, run.new_manifest
    if not manifest.methods:
        run.build_manifest()
    elif manifest.sweep != new.sweep:
        old = find_run_manifest(out)
        why = explain_other_recipe(old, new) if old else ""
        raise build_foreign_error(out, "run", manifest.reads[0].command, why=why)
    for method in manifest.methods:
        if method.label not in labels:
            raise UserError(
                f"{out} also compares {method.label}; name its methods, and new ones behind them"
            )


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
    tuned, value = None, None
    if chosen is not None:
        tuned = dict(state.study.suggestion(chosen).point)
        value = state.results[chosen].values[0]
    return TunedMethod(
        label=label,
        folder=search.out.name,
        searched=list(space.settings),
        suggestions=len(state.results),
        chosen=chosen,
        published=space.active(search.definition.candidates.defaults),
        tuned=tuned,
        published_value=next(iter(state.results[0].values), None),
        tuned_value=value,
        is_within=0 in state.objective.within_guard(state.results),
        cost_s=spent_s(search.out),
    )


def _add_read(
    run: LadderRun, manifest: TunedManifest, methods: Iterable[TunedMethod]
) -> TunedManifest:
    """Add the methods and a read of test, unless it repeats the last one."""
    rungs = {rung.label: rung for rung in run.ladder.rungs}
    seeds, reads = run.resolved.seeds, list(manifest.reads)
    records = []
    for method in methods:
        definition = _define_search(run, rungs[method.label], seeds)
        command = format_choice(definition, run.location, method.tuned or {})
        records.append(method.model_copy(update={"command": command}))
    count = len(seeds.pairs())
    if not reads or len(records) > len(reads[-1].methods) or count > reads[-1].seeds:
        labels = [method.label for method in records]
        reads.append(ReadRecord(seeds=count, command=run.location.command, methods=labels))
    return manifest.model_copy(update={"methods": records, "reads": reads})


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
