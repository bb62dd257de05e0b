"""Search of head methods: suggestions in batches, the heads of one shape trained together.

Batches are asked, trained and told in order, a fixed number of them at a time: what a batch can
know does not depend on which actor was faster, so that a search repeats to the last digit.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from tune_calib.tuning.ray import titles
from tune_calib.tuning.ray.executor import Pool
from tune_calib.tuning.ray.plan import make_plan
from tune_calib.tuning.search.ledger import Ledger
from tune_calib.tuning.search.study import Suggestion


def search_heads(
    ledger: Ledger, pool: Pool, planned: int, population: int, lag: int, largest: int
) -> None:
    """Ask, train and tell until every suggestion has ended.

    Args:
        ledger: of the search.
        pool: trains the heads.
        planned: number of suggestions.
        population: suggestions of a batch.
        lag: batches that are asked for before the first of them is told, >= 1.
        largest: heads of a Ray trial.
    """
    open_batches: deque[list[Suggestion]] = deque()
    for start in range(0, planned, population):
        if len(open_batches) == lag:
            _finish(open_batches.popleft(), ledger, pool)
        numbers = range(start, min(start + population, planned))
        # What a search of this length knows by now, though an extended one may know more.
        known = max(0, start - (lag - 1) * population)
        batch = ledger.study.suggestions(numbers, known)
        _submit(batch, ledger, pool, largest)
        open_batches.append(batch)
    while open_batches:
        _finish(open_batches.popleft(), ledger, pool)


def _submit(batch: Sequence[Suggestion], ledger: Ledger, pool: Pool, largest: int) -> None:
    left = ledger.to_start(s for s in batch if not s.is_finished)
    for population in make_plan(left, set(), largest).populations:
        pool.submit(replace(population, title=titles.suggestions(population.trials)))


def _finish(batch: Sequence[Suggestion], ledger: Ledger, pool: Pool) -> None:
    for suggestion in batch:
        while not (suggestion.is_finished or ledger.is_over(suggestion)):
            ledger.collect(*pool.wait())
        ledger.settle(suggestion)
    ledger.show()
