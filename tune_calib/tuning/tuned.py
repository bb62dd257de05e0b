"""Plan a comparison of methods at their published settings and at those that equal searches choose.

All searches end before the first trial is evaluated on ``test``. They use seeds of their own, so
that the trials of the comparison are those of the same comparison without searches.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.manifests import (
    VERSION,
    ReadRecord,
    SearchEvaluated,
    TunedManifest,
    TunedMethod,
)
from tune_calib.results.selection import BASELINE
from tune_calib.spec.ladder import Rung, find_keys, select_rungs
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import TUNED
from tune_calib.spec.recipe import by_slot, merge_settings
from tune_calib.spec.request import CompareRequest
from tune_calib.spec.resolved import Seeds
from tune_calib.text import format_count
from tune_calib.tuning.folder import Result, build_foreign_error, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.plan import Plan, Stage, check_run
from tune_calib.tuning.search.definition import Objective, SearchDefinition, restrict_space
from tune_calib.tuning.search.outcome import format_choice
from tune_calib.tuning.search.run import SearchRun, count_at_once
from tune_calib.tuning.search.stages import Stages
from tune_calib.tuning.search.storage import journal_file

_FIRST_SEED = 1000
"""The first seed of each suggestion; those of the comparison begin at 0."""


def plan_tuned(run: LadderRun, request: CompareRequest) -> Plan:
    """Plan the searches of a tuned comparison, and the comparison; refuse as much as possible."""
    assert request.tune is not None
    name = f"compare with tune={request.tune} metric={request.metric} guard={request.guard}"
    for option in ("tune_seeds", "sampler_seed", "race", "halving"):
        if not request.has_default(option):
            name += f" {option}={getattr(request, option)}"
    budget = format_count(request.tune, "suggestion")
    metric = METRICS[request.metric].title
    title = f"Methods at published settings and tuned by {budget} each for {metric} on select"
    run = replace(run, ladder=replace(run.ladder, name=name, title=title))
    objective = Objective((request.metric,), request.guard)
    searches = {}
    for rung in select_rungs(run.ladder, run.resolved):
        searches[rung.label] = _build_search(run, rung, objective, request)
    folders = [search.out.name for search in searches.values() if search]
    run = replace(run, parts=(TUNED, *folders))
    if (run.location.out / TUNED).exists():
        manifest = TunedManifest.read(run.location.out)
    else:
        manifest = TunedManifest(
            version=VERSION,
            sweep=run.new_manifest.sweep,
            suggestions=request.tune,
            metric=request.metric,
            rule=objective.describe_rule(),
            methods=[],
            reads=[],
        )
    tuned = _Tuned(run, objective, searches, manifest)
    tuned.refuse_other()
    stages = [Stage(search, search.plan()) for search in tuned.new.values() if search]
    stand_in = tuned.add_rungs(list(map(tuned.guess, searches)))
    return Plan((*stages, Stage(stand_in, stand_in.plan(), tuned.build)))


@dataclass(frozen=True)
class _Tuned:
    run: LadderRun
    objective: Objective
    searches: dict[str, SearchRun | None]  # by label; None without settings to search
    manifest: TunedManifest

    @property
    def new(self) -> dict[str, SearchRun | None]:
        tuned = {method.label for method in self.manifest.methods}
        return {label: search for label, search in self.searches.items() if label not in tuned}

    def refuse_other(self) -> None:
        run, manifest = self.run, self.manifest
        out, new = run.location.out, run.new_manifest
        if not manifest.methods:
            check_run(run)
        elif manifest.sweep != new.sweep:
            raise build_foreign_error(out, "run", manifest.reads[0].command)
        for method in manifest.methods:
            if method.label not in self.searches:
                raise UserError(
                    f"{out} also compares {method.label}; name its methods, and new ones behind "
                    "them"
                )
        for search in filter(None, self.new.values()):
            check_run(search)
            if search.build_manifest().trials > search.length:
                raise UserError(
                    f"{search.out} has more suggestions than `tune`; name another `out`"
                )

    def guess(self, label: str) -> TunedMethod:
        """Return a method with settings that stand for the ones that its search will choose."""
        if (search := self.searches[label]) is None:
            return TunedMethod(label=label)
        candidates = search.definition.candidates
        published = candidates.space.active(candidates.defaults)
        for name, setting in candidates.space.settings.items():
            for level in setting.levels():
                point = candidates.space.active({**published, name: level})
                if point != published:
                    return TunedMethod(label=label, tuned=point)
        return TunedMethod(label=label)

    def build(self, results: Sequence[Result]) -> LadderRun:
        methods, following = list(self.manifest.methods), iter(results)
        for label, search in self.new.items():
            if search is None:
                methods.append(TunedMethod(label=label))
            else:
                methods.append(_record_choice(label, search, next(following)))
        manifest = self._add_read(methods)
        out = self.run.location.out
        # The test split is read for the choices of the searches, which ends them.
        records: list[tuple[TunedManifest | SearchEvaluated, AnyPath]] = [(manifest, out)]
        for method in manifest.methods:
            if method.chosen is not None:
                evaluated = SearchEvaluated(
                    version=VERSION,
                    trial=method.chosen,
                    settings=method.tuned or {},
                    rule=manifest.rule,
                    reads=manifest.reads,
                )
                records.append((evaluated, out / method.folder))
        return replace(self.add_rungs(manifest.methods), records=tuple(records))

    def _add_read(self, methods: Iterable[TunedMethod]) -> TunedManifest:
        """Add the methods and a read of test, unless it repeats the last one."""
        run, manifest = self.run, self.manifest
        rungs = {rung.label: rung for rung in run.ladder.rungs}
        seeds, reads = run.resolved.seeds, list(manifest.reads)
        records = []
        for method in methods:
            definition = _define_search(run, rungs[method.label], self.objective, seeds)
            command = format_choice(definition, run.location, method.tuned or {})
            records.append(method.model_copy(update={"command": command}))
        count = len(seeds.pairs())
        if not reads or len(records) > len(reads[-1].methods) or count > reads[-1].seeds:
            labels = [method.label for method in records]
            reads.append(ReadRecord(seeds=count, command=run.location.command, methods=labels))
        return manifest.model_copy(update={"methods": records, "reads": reads})

    def add_rungs(self, methods: Sequence[TunedMethod]) -> LadderRun:
        """Add a rung behind that of each method whose chosen settings are not published ones."""
        run, rungs = self.run, list[Rung]()
        rungs_of_run = {rung.label: rung for rung in run.ladder.rungs}
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


def _build_search(
    run: LadderRun, rung: Rung, objective: Objective, request: CompareRequest
) -> SearchRun | None:
    seeds = tuple(range(_FIRST_SEED, _FIRST_SEED + request.tune_seeds))
    definition = _define_search(run, rung, objective, Seeds(seeds, seeds, is_paired=True))
    if not rung.slots or not restrict_space(definition.method, definition.resolved, {}).settings:
        return None
    halving = request.halving or 0
    if definition.candidates.kind == "posthoc":  # without epochs to shorten
        halving = 0
    definition = replace(
        definition, sampler_seed=request.sampler_seed, race=request.race, halving=halving
    )
    Stages(definition).check()
    journal_file(run.location.out)  # refuses a URL, where no journal can be
    folder = "search-" + re.sub(r"[^\w.+=-]+", "-", rung.label)
    location = replace(run.location, out=run.location.out / folder, profile=False, among=None)
    assert request.tune is not None
    return SearchRun(definition, request.tune, location, count_at_once(definition, location))


def _define_search(
    run: LadderRun, rung: Rung, objective: Objective, seeds: Seeds
) -> SearchDefinition:
    settings = {}
    for slot, values in merge_settings(run.resolved.overrides, rung.slots).items():
        keys = find_keys([rung, Rung(BASELINE, "")], slot) - {"method"}
        settings[slot] = {key: value for key, value in values.items() if key in keys}
    names = [slot["method"] for slot in rung.slots.values() if "method" in slot]
    return SearchDefinition(
        "+".join(names) or "ce",  # the unchanged network of ``--all``
        replace(run.resolved, overrides=merge_settings(settings), seeds=seeds),
        objective,
    )


def _record_choice(label: str, search: SearchRun, result: Result) -> TunedMethod:
    if result.crashed:
        count = format_count(len(result.crashed), "trial")
        echo(f"{search.out}: {count} crashed; first: {result.crashed[0]}", err=True)
    state = result.state
    chosen = state.objective.choose(state.results)
    space = search.definition.candidates.space
    published = space.active(search.definition.candidates.defaults)
    published_value, is_within = None, True
    # Published settings outside the space are not suggested.
    if dict(state.study.suggestion(0).params) == published:
        published_value = next(iter(state.results[0].values), None)
        is_within = 0 in state.objective.within_guard(state.results)
    tuned = value = None
    if chosen is not None:
        tuned, value = dict(state.study.suggestion(chosen).params), state.results[chosen].values[0]
    return TunedMethod(
        label=label,
        folder=search.out.name,
        searched=list(space.settings),
        suggestions=len(state.results),
        chosen=chosen,
        tuned=tuned,
        tuned_value=value,
        published=published,
        published_value=published_value,
        is_within=is_within,
        cost_s=spent_s(search.out),
    )
