"""What a sampler itself takes, which grows with what it knows."""

import time

from optuna.storages import InMemoryStorage

from tune_calib.experiments.forecast.needs import Needs
from tune_calib.tuning.search.job import Question
from tune_calib.tuning.search.objective import Standing
from tune_calib.tuning.search.study import SearchStudy

MANY_ASKS = 1000
"""Suggestions from which on the sampler's own time is worth counting."""

KNOWN = 200
"""Suggestions behind which one is timed."""


def ask_s(needs: Needs) -> float | None:
    """Seconds that TPE takes for a suggestion, timed now; None where it is not worth a word."""
    question, planned = needs.question, needs.planned or 0
    if question is None or question.sampler != "tpe" or planned < MANY_ASKS:
        return None
    return _time_ask(question)


def asks_s(needs: Needs, one_s: float) -> float:
    """Seconds of all suggestions that are left, given those of one."""
    assert needs.question is not None
    planned = needs.planned or 0
    # Of several objectives every suggestion is read, so that an ask grows with their number.
    is_bounded = len(needs.question.objective.metrics) == 1
    growth = 1.0 if is_bounded else (planned + needs.done) / (2 * KNOWN)
    return one_s * growth * (planned - needs.done)


def _time_ask(question: Question) -> float:
    """Seconds that TPE takes to suggest after ``KNOWN`` suggestions."""
    storage, space = InMemoryStorage(), question.candidates().space
    objective, seed = question.objective, question.sampler_seed
    drawn = SearchStudy(storage, "ask", space, objective, "random", seed, [])
    for number in range(KNOWN):
        drawn.suggestion(number)
        values = (number / KNOWN,) * len(objective.metrics)
        drawn.tell(number, Standing("done", values, 0.0))
    asked = SearchStudy(storage, "ask", space, objective, "tpe", seed, [])
    started = time.monotonic()
    asked.suggestion(KNOWN)
    return time.monotonic() - started
