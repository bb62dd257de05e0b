"""How Ray trials are called where people read: by what they carry out."""

from collections.abc import Sequence

from tune_calib.spec.ladder import PlannedTrial

_NAMED = 2
"""Rungs that a name tells."""


def network(trials: Sequence[PlannedTrial], number: int, total: int) -> str:
    """Of a network, e.g. ``network 2 of 5: vanilla, seed 3``.

    Args:
        trials: that need it.
        number: of it, 1-based.
        total: networks of the plan.
    """
    own = [t.label for t in trials if t.spec.head is None and t.spec.posthoc is None]
    spec = trials[0].spec
    return f"network {number} of {total}: {(own or [spec.network.method])[0]}, {seeds(trials[:1])}"


def heads(trials: Sequence[PlannedTrial], first: int, total: int) -> str:
    """Of a population, e.g. ``heads 9-16 of 40: MaC-Cal, seed 3``.

    Args:
        trials: that it carries out.
        first: how many come before it.
        total: of the plan.
    """
    numbers = _range(first + 1, first + len(trials))
    return f"head{'s' * (len(trials) > 1)} {numbers} of {total}: {rungs(trials)}"


def rungs(trials: Sequence[PlannedTrial]) -> str:
    """Rungs and seeds, e.g. ``vanilla, seed 3``."""
    labels = list(dict.fromkeys(trial.label for trial in trials))
    more = [f"and {len(labels) - _NAMED} more"] if len(labels) > _NAMED else []
    return ", ".join([*labels[:_NAMED], *more, seeds(trials)])


def suggestions(trials: Sequence[PlannedTrial]) -> str:
    """Of trials of a search, e.g. ``suggestions 41-48, seed 0``."""
    numbers = sorted({trial.rung for trial in trials})
    if len(numbers) == 1:
        return f"suggestion {numbers[0]}, {seeds(trials)}"
    return f"suggestions {_numbers(numbers)}, {seeds(trials)}"


def seeds(trials: Sequence[PlannedTrial]) -> str:
    """Seeds of networks, and those of heads where they are others."""
    networks = sorted({trial.spec.network.seed for trial in trials})
    told = f"seed{'s' * (len(networks) > 1)} {_numbers(networks)}"
    own = [(t.spec.network.seed, t.spec.head.seed) for t in trials if t.spec.head is not None]
    if all(one == other for one, other in own):
        return told
    return f"{told}, of heads {_numbers(sorted({head for _, head in own}))}"


def _numbers(numbers: Sequence[int]) -> str:
    """Sorted numbers: as a range where there is no gap."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return _range(numbers[0], numbers[-1])
    return ", ".join(map(str, numbers))


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
