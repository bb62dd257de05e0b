"""A study that shows a sampler no more than was known when a suggestion was due.

A search that was made longer has standings that a search of the whole length would not have had
yet: shown as open, they leave both with the same suggestions.
"""

import contextlib
import copy
from collections.abc import Container, Iterator, Sequence

from optuna import Study
from optuna.trial import FrozenTrial, TrialState


class StudyAsAsked(Study):
    """A study whose storage is read once for several suggestions.

    Attributes:
        shown: the trials that its sampler reads; None shows what the storage holds.
    """

    shown: list[FrozenTrial] | None = None

    @contextlib.contextmanager
    def showing(
        self, trials: Sequence[FrozenTrial], known: int | None
    ) -> Iterator[list[FrozenTrial]]:
        """Show some trials, and give the list of them, to which new ones are added.

        Args:
            trials: of the storage.
            known: number of the trial from which on all look open; None shows everything.
        """
        last = len(trials) if known is None else known
        self.shown = [*trials[:last], *map(_as_open, trials[last:])]
        try:
            yield self.shown
        finally:
            self.shown = None

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        if self.shown is None:
            return super()._get_trials(deepcopy, states, use_cache)
        return [trial for trial in self.shown if states is None or trial.state in states]


def _as_open(trial: FrozenTrial) -> FrozenTrial:
    """A trial as it was before it was told."""
    if not trial.state.is_finished():
        return trial
    is_open = copy.copy(trial)
    is_open.state, is_open.values = TrialState.RUNNING, None
    # Of the system's attributes only constraints are told; samplers wrote the others.
    is_open.system_attrs = {
        key: value for key, value in trial.system_attrs.items() if "constraints" not in key
    }
    return is_open
