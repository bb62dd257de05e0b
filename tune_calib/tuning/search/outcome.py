"""What a search found, as a plain file: the figures are drawn where Optuna is not known."""

from collections.abc import Mapping

from tune_calib.manifests import VERSION, Importance, SearchOutcome, SuggestionRecord
from tune_calib.tuning.search.ledger import SearchTrials
from tune_calib.tuning.search.study import Suggestion

TOP_SHARE, LEAST_TOP, LEAST_DONE = 0.1, 5, 20


def write_outcome(trials: SearchTrials, asked: int, planned: int) -> None:
    """Write ``outcome.json`` of a search, of what has ended.

    Args:
        trials: the search; every suggestion that ended was judged.
        asked: suggestions that the manifest asks for.
        planned: suggestions with those that are tried again, and no more than a grid has.
    """
    candidates, objective = trials.candidates, trials.objective
    shown = dict.fromkeys([*objective.metrics, "accuracy"])
    defaults = candidates.space.active(candidates.defaults)
    SearchOutcome(
        version=VERSION,
        asked=asked,
        planned=planned,
        metrics=list(objective.metrics),
        baseline=dict(zip(shown, trials.baseline_means(shown), strict=True)),
        settings={name: setting.plain() for name, setting in candidates.space.settings.items()},
        defaults=defaults,
        published=[point for point in candidates.first() if point != defaults],
        suggestions=[_suggestion(trials, number) for number in sorted(trials.verdicts)],
        front=objective.pareto(trials.verdicts),
        chosen=objective.chosen(trials.verdicts),
        importance=importance(trials),
    ).write(trials.out)


def _suggestion(trials: SearchTrials, number: int) -> SuggestionRecord:
    suggestion: Suggestion = trials.study.suggestion(number)
    verdict = trials.verdicts[number]
    is_done = verdict.status == "done"
    return SuggestionRecord(
        number=number,
        status=verdict.status,
        point=dict(suggestion.point),
        drop=verdict.drop if is_done else None,
        is_within=is_done and trials.objective.excess(verdict) <= 0,
        specs=trials.hashes(suggestion),
    )


def importance(trials: SearchTrials) -> Importance:
    """How much each setting tells the best suggestions from the rest, by Optuna's PED-ANOVA.

    Suggestions beyond the guard count too.
    """
    done = sum(verdict.status == "done" for verdict in trials.verdicts.values())
    top = max(LEAST_TOP, round(TOP_SHARE * done))
    if done < LEAST_DONE:
        statement = f"{done} suggestions are done, and importance needs {LEAST_DONE}"
        return Importance(done=done, top=0, shares={}, statement=statement)
    found = {
        metric: _shares(trials.study.divergences(index, top / done))
        for index, metric in enumerate(trials.objective.metrics)
    }
    shares = {metric: own for metric, own in found.items() if own}
    statement = "" if shares else "no setting tells the best suggestions from the rest"
    return Importance(done=done, top=top, shares=shares, statement=statement)


def _shares(divergences: Mapping[str, float]) -> dict[str, float]:
    """Parts of the sum, largest first; empty if nothing is told apart."""
    total = sum(divergences.values())
    order = sorted(divergences, key=lambda name: (-divergences[name], name))
    return {name: divergences[name] / total for name in order} if total > 0 else {}
