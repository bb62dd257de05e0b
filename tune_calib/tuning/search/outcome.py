"""What a search found, as a plain file: the figures are drawn where Optuna is not known."""

from collections.abc import Mapping

from tune_calib.results.manifests import VERSION, Importance, SearchOutcome, SuggestionRecord
from tune_calib.tuning.search.ledger import Ledger
from tune_calib.tuning.search.study import Suggestion

TOP_SHARE, LEAST_TOP, LEAST_DONE = 0.1, 5, 20


def write_outcome(ledger: Ledger, asked: int, planned: int, command: str = "") -> None:
    """Write ``outcome.json`` of a search, of what has ended.

    Args:
        ledger: of the search; every suggestion that ended was judged.
        asked: suggestions that the manifest asks for.
        planned: suggestions with those that are tried again, and no more than a grid has.
        command: that trains the choice again; empty where there is none.
    """
    candidates, objective = ledger.candidates, ledger.objective
    shown = dict.fromkeys([*objective.metrics, "accuracy"])
    defaults = candidates.space.active(candidates.defaults)
    SearchOutcome(
        version=VERSION,
        asked=asked,
        planned=planned,
        metrics=list(objective.metrics),
        baseline=dict(zip(shown, ledger.baseline_means(shown), strict=True)),
        settings={name: setting.plain() for name, setting in candidates.space.settings.items()},
        defaults=defaults,
        published=[point for point in candidates.first() if point != defaults],
        suggestions=[
            _record(ledger, suggestion)
            for suggestion in ledger.study.suggestions(sorted(ledger.standings))
        ],
        front=objective.pareto(ledger.standings),
        chosen=objective.chosen(ledger.standings),
        importance=importance(ledger),
        command=command or None,
    ).write(ledger.out)


def _record(ledger: Ledger, suggestion: Suggestion) -> SuggestionRecord:
    standing = ledger.standings[suggestion.number]
    # A drop of what diverged is NaN, which is no JSON.
    is_done = standing.status == "done"
    return SuggestionRecord(
        number=suggestion.number,
        status=standing.status,
        point=dict(suggestion.point),
        drop=standing.drop if is_done else None,
        is_within=is_done and ledger.objective.excess(standing) <= 0,
        specs=ledger.hashes(suggestion),
    )


def importance(ledger: Ledger) -> Importance:
    """Compute the importance of each setting by Optuna's PED-ANOVA.

    Suggestions beyond the guard count too.
    """
    done = sum(standing.status == "done" for standing in ledger.standings.values())
    top = max(LEAST_TOP, round(TOP_SHARE * done))
    if done < LEAST_DONE:
        statement = f"{done} suggestions are done, and importance needs {LEAST_DONE}"
        return Importance(done=done, top=0, shares={}, statement=statement)
    found = {
        metric: _shares(ledger.study.divergences(index, top / done))
        for index, metric in enumerate(ledger.objective.metrics)
    }
    shares = {metric: own for metric, own in found.items() if own}
    statement = "" if shares else "no setting tells the best suggestions from the rest"
    return Importance(done=done, top=top, shares=shares, statement=statement)


def _shares(divergences: Mapping[str, float]) -> dict[str, float]:
    """Parts of the sum, largest first; empty if nothing is told apart."""
    total = sum(divergences.values())
    order = sorted(divergences, key=lambda name: (-divergences[name], name))
    return {name: divergences[name] / total for name in order} if total > 0 else {}
