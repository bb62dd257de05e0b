"""The rule that stops a search: what may still be gained is less than the noise of its best value.

The gain is the upper bound of the regret of Optuna's terminator, from a Gaussian process over the
suggestions within the guard (Makarova et al., 2022); the noise is the standard error of the best
mean over seeds. The rule is checked before fixed suggestions, on results that these can see.
"""

import math
import warnings
from collections.abc import Sequence
from statistics import fmean

from optuna.exceptions import ExperimentalWarning
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from tune_calib.errors import UserError
from tune_calib.results.manifests import StopRecord
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.tuning.search.definition import SearchDefinition

LEAST, EVERY = 24, 8  # suggestions before the first check and between checks
POOLED = 10  # best suggestions over which the variance between seeds is averaged
MOST = 200  # best suggestions on which the Gaussian process is fitted
VARIANCE = "variance"  # attribute of a trial of the study: of its first metric between seeds


def refuse_stop(definition: SearchDefinition) -> None:
    """Refuse the rule where it does not know the noise, or the suggestions are given."""
    if len(definition.resolved.seeds.pairs()) < 2:
        raise UserError(
            "compares gains with the noise between seeds; set `seeds` to 2 or more", "stop"
        )
    if SAMPLERS[definition.sampler].tries_grid or definition.join:
        raise UserError("ends a search before its last suggestion, but a grid needs all", "stop")
    if definition.halving:
        raise UserError("compares suggestions at equal epochs; leave `halving` out", "stop")
    if len(definition.objective.metrics) > 1:
        raise UserError("compares suggestions by one metric; name one `metric`", "stop")


def check_stop(
    definition: SearchDefinition, trials: Sequence[FrozenTrial], length: int
) -> StopRecord | None:
    """Check the rule before suggestion ``length``, on trials of the study within the guard."""
    if length < LEAST or length % EVERY or len(trials) < POOLED:
        return None
    from optuna.terminator import RegretBoundEvaluator  # imports torch

    sign = definition.objective.signs[0]
    best = sorted(trials, key=lambda trial: (sign * trial.values[0], trial.number))[:MOST]
    variance = fmean(trial.user_attrs[VARIANCE] for trial in best[:POOLED])
    error = math.sqrt(variance / len(definition.resolved.seeds.pairs()))
    direction = StudyDirection.MINIMIZE if sign == 1 else StudyDirection.MAXIMIZE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        bound = RegretBoundEvaluator(seed=0).evaluate(best, direction)
    if bound >= error:
        return None
    return StopRecord(length=length, bound=bound, error=error, best=best[0].number)
