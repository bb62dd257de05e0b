"""Titles of Ray trials for people, such as ``heads 9-16 of 40: MaC-Cal, seed 3``."""

from collections.abc import Sequence

from tune_calib.spec.ladder import PlannedTrial

_NAMED = 2
"""Rungs that a title names; further ones are counted."""


def network(trials: Sequence[PlannedTrial], number: int, total: int) -> str:
    """Title a network by its number (from 1) and the first trial that needs it."""
    own = [t.label for t in trials if t.spec.head is None and t.spec.posthoc is None]
    label = own[0] if own else trials[0].spec.network.method
    return f"network {number} of {total}: {label}, {seeds(trials[:1])}"


def heads(trials: Sequence[PlannedTrial], before: int, total: int) -> str:
    """Title a population of heads with so many heads before it."""
    numbers = _range(before + 1, before + len(trials))
    return f"head{'s' * (len(trials) > 1)} {numbers} of {total}: {rungs(trials)}"


def suggestions(trials: Sequence[PlannedTrial]) -> str:
    """Title trials of a search, e.g. ``suggestions 41-48, seed 0``."""
    numbers = sorted({trial.rung for trial in trials})
    return f"suggestion{'s' * (len(numbers) > 1)} {_numbers(numbers)}, {seeds(trials)}"


def rungs(trials: Sequence[PlannedTrial]) -> str:
    """Format rungs and seeds, e.g. ``vanilla, seed 3``."""
    labels = list(dict.fromkeys(trial.label for trial in trials))
    more = [f"and {len(labels) - _NAMED} more"] if len(labels) > _NAMED else []
    return ", ".join([*labels[:_NAMED], *more, seeds(trials)])


def seeds(trials: Sequence[PlannedTrial]) -> str:
    """Format the seeds of networks, and those of heads where they differ."""
    networks = sorted({trial.spec.network.seed for trial in trials})
    text = f"seed{'s' * (len(networks) > 1)} {_numbers(networks)}"
    own = [(t.spec.network.seed, t.spec.head.seed) for t in trials if t.spec.head is not None]
    if all(one == other for one, other in own):
        return text
    return f"{text}, of heads {_numbers(sorted({head for _, head in own}))}"


def _numbers(numbers: Sequence[int]) -> str:
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return _range(numbers[0], numbers[-1])
    return ", ".join(map(str, numbers))


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
