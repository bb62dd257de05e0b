"""TPE that reads the best and the last trials."""

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial

from tune_calib.tuning.search.recent_tpe import BEST, LAST, RecentStudy, RecentTPESampler

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
SPACE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
DIRECTIONS = ["minimize", "maximize"]


def study_of(trials, direction="minimize"):
    """A study of random points; of every third the accuracy dropped too far."""
    chance = np.random.default_rng(0)
    study = optuna.create_study(direction=direction)
    for number in range(trials):
        x, y = chance.random(2)
        trial = create_trial(
            params={"x": x, "y": y},
            distributions=SPACE,
            value=(x - 0.3) ** 2 + y,
            constraints={"accuracy": 1.0 if number % 3 == 0 else -1.0},
        )
        study.add_trial(trial)
    return study


def suggested(study, kind, seed=3):
    options = {"multivariate": True, "group": True, "constant_liar": True}
    study.sampler = kind(seed=seed, **options)
    return study.ask(SPACE).params


@pytest.mark.parametrize("trials", [5, 60, LAST])
def test_a_small_study_is_read_as_a_whole(trials):
    assert suggested(study_of(trials), RecentTPESampler) == suggested(study_of(trials), TPESampler)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_of_a_long_study_the_last_and_the_best_feasible_ones_are_read(direction):
    study = study_of(LAST + 200, direction)
    study.add_trial(create_trial(state=TrialState.FAIL))
    shown = RecentStudy(study)._get_trials(states=(TrialState.COMPLETE,))
    sign = 1 if direction == "minimize" else -1
    feasible = [trial for trial in study.trials[:200] if trial.number % 3]
    best = sorted(feasible, key=lambda trial: sign * trial.value)[:BEST]
    numbers = [trial.number for trial in shown]
    assert numbers == [*sorted(t.number for t in best), *range(200, LAST + 200)]


def test_what_a_long_study_suggests_is_near_its_best():
    study = study_of(LAST + 200)
    points = [suggested(study, RecentTPESampler, seed) for seed in range(20)]
    usual = np.mean([trial.value for trial in study.trials[: LAST + 200]])
    assert np.mean([(p["x"] - 0.3) ** 2 + p["y"] for p in points]) < usual / 3
