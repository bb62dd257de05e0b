"""A study that shows a sampler no more than was known when a suggestion was due.

A search that was made longer has standings that a search of the whole length would not have had
yet: shown as open, they leave both with the same suggestions.
"""

import copy
from collections.abc import Container

from optuna import Study
from optuna.trial import FrozenTrial, TrialState


class StudyAsAsked(Study):
    """A study whose later standings can be hidden from its sampler.

    Attributes:
        known: number of the trial from which on all look open; None shows everything.
    """

    known: int | None = None

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        if self.known is None:
            return super()._get_trials(deepcopy, states, use_cache)
        trials = super()._get_trials(deepcopy=False, use_cache=use_cache)
        shown = [*trials[: self.known], *map(_as_open, trials[self.known :])]
        return [trial for trial in shown if states is None or trial.state in states]


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
