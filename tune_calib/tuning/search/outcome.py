"""The result of a search: a file, from which its page is made."""

import json
from collections.abc import Mapping
from itertools import chain, pairwise
from typing import Any

from optuna.trial import FrozenTrial

from tune_calib.engine.imports import find_names
from tune_calib.files.store import Store
from tune_calib.results.manifests import VERSION, SearchOutcome, SuggestionRecord
from tune_calib.results.tables import read_table
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.recipe import QUICK, Recipe
from tune_calib.spec.request import CompareRequest, format_command
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.settings import find_recipe
from tune_calib.spec.space import Point
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.reuse import SHARED
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.search.rules import Halving
from tune_calib.tuning.search.state import SearchState

NO_ROW = "no result row was written"


def write_outcome(state: SearchState, location: RunLocation, stopped: str | None = None) -> None:
    """Write ``outcome.json``; a report (``stopped`` None) keeps what a time limit left undone."""
    from tune_calib.tuning.search.importance import compute_importance  # imports scikit-learn

    candidates, objective = state.candidates, state.objective
    metrics = dict.fromkeys([*objective.metrics, "accuracy"])
    defaults = candidates.space.active(candidates.defaults)
    suggestions = state.study.suggestions(sorted(state.results))
    chosen, command = objective.choose(state.results), None
    if chosen is not None and not location.replay:
        point = state.study.suggestion(chosen).params
        command = format_choice(state.definition, location, point) or None
    old = SearchOutcome.find(state.out)
    causes = {entry.number: entry.crashes for entry in old.suggestions} if old else {}
    records = [_build_record(state, suggestion, causes) for suggestion in suggestions]
    if stopped is None:
        stopped = old.stopped if old and len(old.suggestions) == len(records) else ""
    reused = read_table(state.out, "trials", f"{SHARED}*", columns=["spec_hash"])
    outcome = SearchOutcome(
        version=VERSION,
        asked=state.length,
        planned=state.planned,
        metrics=list(objective.metrics),
        baseline=dict(zip(metrics, state.baseline_means(metrics), strict=True)),
        settings={name: setting.plain() for name, setting in candidates.space.settings.items()},
        defaults=defaults,
        published=[point for point in candidates.first() if point != defaults],
        suggestions=records,
        front=objective.find_front(state.results),
        chosen=chosen,
        importance=compute_importance(state),
        command=command,
        stopped=stopped,
        reused=sorted(reused["spec_hash"].to_pylist()),
    )
    outcome.write(state.out)


def _build_record(
    state: SearchState, suggestion: FrozenTrial, causes: Mapping[int, list[str]]
) -> SuggestionRecord:
    """Build the record of a suggestion; ``causes`` are those of crashes of earlier drivers."""
    result, specs = state.results[suggestion.number], state.hashes(suggestion)
    drop, is_within, crashes = None, False, list[str]()
    if result.status == "done":  # otherwise the drop is NaN, which JSON lacks
        drop, is_within = result.drop, state.objective.excess(result) <= 0
    if result.status == "crashed":
        names = [state.crashed[spec_hash] for spec_hash in specs if spec_hash in state.crashed]
        crashes = [state.errors.get(name, NO_ROW) for name in names]
    shorter = list[str]()
    if state.definition.halving:
        stages = state.hashes_by_stage(suggestion)[: state.count_passed(suggestion)]
        specs, shorter = stages[-1], list(chain.from_iterable(stages[:-1]))
    return SuggestionRecord(
        number=suggestion.number,
        status=result.status,
        point=dict(suggestion.params),
        drop=drop,
        is_within=is_within,
        specs=specs,
        crashes=crashes or causes.get(suggestion.number, []),
        shorter=shorter,
    )


def describe_rungs(state: SearchState) -> list[str]:
    """Describe how well the short schedules of a search predict the longer ones."""
    if not state.definition.halving:
        return []
    rule, lines = state.build_rule(state.results), []
    assert isinstance(rule, Halving)
    for (short, long), tau in zip(pairwise(state.stages.rungs), rule.taus, strict=True):
        line = f"ranks at {short} and {long} epochs: tau {tau.value:.2f} ({tau.pairs} promoted)"
        if tau.is_chance:
            line += "; it is not above chance, so no more are promoted"
        lines.append(line)
    return lines


def format_choice(definition: SearchDefinition, location: RunLocation, point: Point) -> str:
    """Format the command that trains a point of a search; return "" if the recipe has changed."""
    resolved = definition.resolved
    settings = {**resolved.fixed, **point}
    name = _find_recipe_name(resolved, settings.get("network.backbone"))
    if _to_text(find_recipe(resolved.overrides, name)) != _to_text(resolved.recipe):
        return ""
    data: Mapping[str, Any] = resolved.overrides.get("data", {})
    values: dict[str, Any] = {"methods": (definition.method,)}
    if (record := data.get("imported")) is None:
        values["dataset"] = data.get("dataset")
    elif names := find_names(record["digest"], Store(location.store)):
        values["imported"] = names[0]
    else:
        settings["data.imported"] = record
    seeds = resolved.seeds
    if seeds.is_paired:
        values["seeds"] = len(seeds.network)
    else:
        values |= {"network_seeds": len(seeds.network), "head_seeds": len(seeds.head)}
    request = CompareRequest.model_construct(
        recipe=name,
        set=settings,
        split_seeds=len(resolved.split_seeds) or None,
        data_root=location.data_root,
        store=str(location.store),
        address=location.address,
        gpus=location.gpus,
        own_recipes=resolved.own_recipes,
        **values,
    )
    return format_command("compare", request, further=plugins.as_options())


def _find_recipe_name(resolved: ResolvedRequest, backbone: str | None) -> str | None:
    recipe = resolved.recipe
    if recipe is None:
        return None
    if recipe.name != QUICK:
        return recipe.name
    quick = DATASETS[recipe.datasets[0]].quick
    is_own = quick is None or not quick.backbones or backbone in (None, *quick.backbones)
    return None if is_own or resolved.is_frozen else QUICK


def _to_text(recipe: Recipe | None) -> str:
    """Format a recipe for a comparison; JSON also turns tuples into lists, as in files."""
    if recipe is None:
        return ""
    return json.dumps([recipe.settings, recipe.plain()], sort_keys=True)
