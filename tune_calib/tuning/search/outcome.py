"""The outcome of a search as a plain file, from which figures are drawn without Optuna."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from tune_calib.engine.imports import find_names
from tune_calib.engine.store import Store
from tune_calib.results.manifests import VERSION, Importance, SearchOutcome, SuggestionRecord
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.recipe import QUICK, Recipe
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.settings import find_recipe
from tune_calib.spec.space import Point
from tune_calib.text import format_yaml, option_words
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.search.study import Suggestion

TOP_SHARE, LEAST_TOP, LEAST_DONE = 0.1, 5, 20


def write_outcome(state: SearchState, location: RunLocation) -> SearchOutcome:
    """Write ``outcome.json`` of a search; the result of each suggestion that ended is known."""
    candidates, objective = state.candidates, state.objective
    metrics = dict.fromkeys([*objective.metrics, "accuracy"])
    defaults = candidates.space.active(candidates.defaults)
    choice = state.find_choice()
    suggestions = state.study.suggestions(sorted(state.results))
    outcome = SearchOutcome(
        version=VERSION,
        asked=state.length,
        planned=state.planned,
        metrics=list(objective.metrics),
        baseline=dict(zip(metrics, state.baseline_means(metrics), strict=True)),
        settings={name: setting.plain() for name, setting in candidates.space.settings.items()},
        defaults=defaults,
        published=[point for point in candidates.first() if point != defaults],
        suggestions=[_build_record(state, suggestion) for suggestion in suggestions],
        front=objective.find_front(state.results),
        chosen=objective.choose(state.results),
        importance=compute_importance(state),
        command=(choice and format_choice(state.definition, location, choice)) or None,
    )
    outcome.write(state.out)
    return outcome


def _build_record(state: SearchState, suggestion: Suggestion) -> SuggestionRecord:
    result = state.results[suggestion.number]
    # A drop of what diverged is NaN, which is no JSON.
    is_done = result.status == "done"
    return SuggestionRecord(
        number=suggestion.number,
        status=result.status,
        point=dict(suggestion.point),
        drop=result.drop if is_done else None,
        is_within=is_done and state.objective.excess(result) <= 0,
        specs=state.hashes(suggestion),
    )


def compute_importance(state: SearchState) -> Importance:
    """Compute the importance of each setting by Optuna's PED-ANOVA, also beyond the guard."""
    done = sum(result.status == "done" for result in state.results.values())
    top = max(LEAST_TOP, round(TOP_SHARE * done))
    if done < LEAST_DONE:
        statement = f"{done} suggestions are done, and importance needs {LEAST_DONE}"
        return Importance(done=done, top=0, shares={}, statement=statement)
    shares = {
        metric: own
        for index, metric in enumerate(state.objective.metrics)
        if (own := _normalise(state.study.divergences(index, top / done)))
    }
    statement = "" if shares else "no setting tells the best suggestions from the rest"
    return Importance(done=done, top=top, shares=shares, statement=statement)


def _normalise(divergences: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of the sum, largest first; empty if the sum is zero."""
    total = sum(divergences.values())
    order = sorted(divergences, key=lambda name: (-divergences[name], name))
    return {name: divergences[name] / total for name in order} if total > 0 else {}


def format_choice(definition: SearchDefinition, location: RunLocation, point: Point) -> str:
    """Format the command that trains the method of a search with the settings of a point.

    It names every setting that was fixed too. It is empty where no command does it, since the
    recipe is another one by now than when the search began.
    """
    resolved = definition.resolved
    settings = {**resolved.fixed, **point}
    name = _find_recipe_name(resolved, settings.get("network.backbone"))
    if _to_text(find_recipe(resolved.overrides, name)) != _to_text(resolved.recipe):
        return ""
    options: list[tuple[str, Any]] = []
    record = resolved.overrides.get("data", {}).get("imported")
    if record is not None:
        known = find_names(record["digest"], Store(location.store))
        options += [("imported", known[0])] if known else []
        settings |= {} if known else {"data.imported": record}
    else:
        options.append(("dataset", resolved.overrides.get("data", {}).get("dataset", "digits")))
    options += [("recipe", name)] if name else []
    options += [("set", f"{key}={format_yaml(value)}") for key, value in settings.items()]
    seeds = resolved.seeds
    if seeds.is_paired:
        options.append(("seeds", len(seeds.network)))
    else:
        counts = {"network-seeds": len(seeds.network), "head-seeds": len(seeds.head)}
        options += [(key, count) for key, count in counts.items() if count > 1]
    where = {
        "data-root": location.data_root,
        "store": location.store,
        "address": location.address,
    }
    options += [(key, value) for key, value in where.items() if value is not None]
    options += [("gpus", location.gpus)] if location.gpus else []
    options += [("own-recipes", True)] if resolved.own_recipes else []
    words = [*option_words(options), *plugins.as_options()]
    return shlex.join(["tune-calib", "compare", definition.method, *words])


def _find_recipe_name(resolved: ResolvedRequest, backbone: str | None) -> str | None:
    """Return the name of the recipe for the option; None if it is the default."""
    recipe = resolved.recipe
    if recipe is None or recipe.name != QUICK:
        return None if recipe is None else recipe.name
    quick = DATASETS[recipe.datasets[0]].quick
    is_own = quick is None or not quick.backbones or backbone in (None, *quick.backbones)
    return None if is_own or resolved.is_frozen else QUICK


def _to_text(recipe: Recipe | None) -> str:
    """Format a recipe to compare it; one read from a file has lists in place of tuples."""
    return json.dumps([recipe.settings, recipe.plain()] if recipe else None, sort_keys=True)
