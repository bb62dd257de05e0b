"""TPE that reads the best and the last trials."""

import numpy as np
import optuna
import pytest
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.trial import TrialState, create_trial

from tests.support import each
from tune_calib.tuning.search.as_asked import StudyAsAsked
from tune_calib.tuning.search.densities import Densities
from tune_calib.tuning.search.recent_tpe import BEST, LAST, RecentTPESampler

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
SPACE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
DIRECTIONS = ["minimize", "maximize"]


def study_of(trials, direction="minimize"):
    """A study of random points; of every third the accuracy dropped too far."""
    chance = np.random.default_rng(0)
    made = optuna.create_study(direction=direction)
    study = StudyAsAsked(made.study_name, made._storage)
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


def optunas() -> TPESampler:
    return TPESampler(multivariate=True, group=True, constant_liar=True)


def suggested(study, sampler, seed=3):
    sampler._rng.rng.seed(seed)
    sampler._random_sampler._rng.rng.seed(seed)
    study.sampler = sampler
    return study.ask(SPACE).params


@pytest.mark.parametrize("trials", [5, 60, LAST])
def test_a_small_study_is_read_as_a_whole(trials):
    ours = suggested(study_of(trials), RecentTPESampler())
    assert ours == pytest.approx(suggested(study_of(trials), optunas()), rel=1e-9)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_of_a_long_study_the_last_and_the_best_feasible_ones_are_read(direction):
    study = study_of(LAST + 200, direction)
    study.add_trial(create_trial(state=TrialState.FAIL))
    numbers = [trial.number for trial in RecentTPESampler()._recent(study)]
    sign = 1 if direction == "minimize" else -1
    feasible = [trial for trial in study.trials[:200] if trial.number % 3]
    best = sorted(feasible, key=lambda trial: sign * trial.value)[:BEST]
    assert numbers == [*sorted(t.number for t in best), *range(200, LAST + 200)]


def test_what_a_long_study_suggests_is_near_its_best():
    study = study_of(LAST + 200)
    points = [suggested(study, RecentTPESampler(), seed) for seed in range(20)]
    usual = np.mean([trial.value for trial in study.trials[: LAST + 200]])
    assert np.mean([(p["x"] - 0.3) ** 2 + p["y"] for p in points]) < usual / 3


RANGES = {
    "number": FloatDistribution(-2.0, 3.0),
    "rate": FloatDistribution(1e-6, 1.0, log=True),
    "shape": CategoricalDistribution(["a", "b", None]),
    "one": CategoricalDistribution([True]),
    "width": IntDistribution(1, 64, log=True),
    "layers": IntDistribution(1, 9, step=2),
    "share": FloatDistribution(0.0, 1.0, step=0.25),
}
SPACES = [[name] for name in RANGES]
SPACES += [["number", "rate"], ["shape", "rate", "one", "number"], ["rate", "width", "shape"]]


@each("observed", [0, 1, 30, 330])
@each("names", SPACES)
def test_densities_are_optunas(names, observed):
    """The same points from the same generator, and the same density at them."""
    space = {name: RANGES[name] for name in names}
    chance = np.random.RandomState(1)
    parameters = optunas()._parzen_estimator_parameters
    empty = {name: np.array([]) for name in names}
    observations = _ParzenEstimator(empty, space, parameters).sample(chance, observed)
    for name, part in space.items():  # an end of a range too, where truncation tells
        if observed > 1 and not isinstance(part, CategoricalDistribution):
            observations[name][:2] = part.low, part.high
    theirs = _ParzenEstimator(observations, space, parameters)
    ours = Densities(observations, space, parameters)
    points = theirs.sample(np.random.RandomState(2), 500)
    drawn = ours.sample(np.random.RandomState(2), 500)
    assert list(drawn) == list(points)
    for name, part in space.items():
        np.testing.assert_allclose(drawn[name], points[name], rtol=1e-7, atol=1e-9)
        assert all(part._contains(value) for value in drawn[name])
    np.testing.assert_allclose(ours.log_pdf(points), theirs.log_pdf(points), rtol=1e-9, atol=1e-9)
