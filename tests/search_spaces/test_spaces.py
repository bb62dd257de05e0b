"""Every method with settings has a space, and every first point of it lies in it."""

from dataclasses import replace
from itertools import product

import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from tests import support
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import RECIPES, fitting
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.space import FACTOR, SPACES, Setting, Space, choice, uniform
from tune_calib.tuning.search.definition import Candidates

# Post-hoc methods without settings.
WITHOUT = {"irm", "irova", "irova_ts", "beta", "mean_confidence", "smart"}
# Tuned comparisons take them as they are: the objective is their only setting.
ONE_OBJECTIVE = {"vector", "isotonic"}


def test_every_method_with_settings_has_a_space_and_every_space_a_method():
    assert set(SPACES) == set(METHODS) - WITHOUT - ONE_OBJECTIVE
    assert not any(METHODS[name].params.model_fields for name in WITHOUT)
    assert all(set(METHODS[n].params.model_fields) == {"top_versus_all"} for n in ONE_OBJECTIVE)


def published(candidates):
    space, defaults = candidates.space, candidates.defaults
    return [space.active({**defaults, **point}) for point in space.first]


def with_fitting_recipe(asked, dataset):
    """By its quick setting, else by a recipe that fits; pretrained networks have weights."""
    name = None if DATASETS[dataset].quick else fitting(dataset)[0]
    if name and RECIPES[name].pretrained:
        settings = {**asked.overrides, "network": {"weights": "0123456789abcdef"}}
        asked = replace(asked, overrides=settings, own_recipes=False)  # which they cannot have
    return asked.with_recipe(name)


REQUESTS = list(product(DATASETS, (False, True), (False, True)))


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(SPACES))
def test_every_first_point_lies_in_the_space_and_makes_a_spec(name):
    space = SPACES[name]
    for case in REQUESTS if support.EVERY_CASE else REQUESTS[:: len(REQUESTS) // 5]:
        dataset, suited, own_recipes = case
        request = ResolvedRequest({"data": {"dataset": dataset}}, own_recipes=own_recipes)
        candidates = Candidates(name, with_fitting_recipe(request, dataset) if suited else request)
        points = candidates.first()
        assert points[0] == space.active(candidates.defaults), case
        assert len(points) == 1 + sum(point != points[0] for point in published(candidates)), case
        for point in points:
            assert space.holds(point), case
            assert point == space.active(point), case
            assert candidates.trials(point, 0), case


def test_a_fixed_setting_and_its_dependents_are_not_searched():
    space = Space(
        "any",
        {
            "head.shape": choice("linear", "bottleneck"),
            "head.width": choice(64, 256, head__shape=("bottleneck",)),
            "head.lr": uniform(0.1, 0.2),
        },
    )
    assert list(space.without({"head.shape": "linear"}).settings) == ["head.lr"]
    left = space.without({"head.shape": "bottleneck"})
    assert list(left.settings) == ["head.width", "head.lr"]
    assert left.settings["head.width"].matters({})
    assert len(list(space.grid())) == 3 + 2 * 3


@pytest.mark.parametrize(
    ("low", "high", "step", "levels"),
    [(1, 10, 3, [1, 4, 10]), (0, 8, 2, [0, 4, 8]), (2, 3, 1, [2, 3]), (5, 5, 1, [5])],
)
def test_the_levels_of_integers_are_values_of_their_range(low, high, step, levels):
    setting = Setting(IntDistribution(low, high, step=step))
    assert setting.levels() == levels
    assert setting.holds(high)
    assert not setting.holds(high + 1)


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        (IntDistribution(1, 1000, log=True), [1, 6, 32, 178]),
        (IntDistribution(0, 8, step=4), [0, 0, 4, 8]),
        (FloatDistribution(1.0, 16.0, log=True), [1.0, 2.0, 4.0, 8.0]),
        (FloatDistribution(0.0, 2.0), [0.0, 0.5, 1.0, 1.5]),
    ],
    ids=str,
)
@pytest.mark.every_case
def test_fractions_of_a_distribution_follow_its_scale(distribution, expected):
    setting = Setting(distribution)
    drawn = [setting.at(fraction) for fraction in (0.0, 0.25, 0.5, 0.75)]
    assert drawn == pytest.approx(expected)


@pytest.mark.parametrize("name", list(SPACES))
def test_spaces_follow_one_rule(name):
    """Rates and penalties have ranges of one factor, other ranges a reason; slots one optimiser."""
    settings, kind = SPACES[name].settings, METHODS[name].kind
    for key, setting in settings.items():
        distribution = setting.distribution
        if hasattr(distribution, "choices") or setting.reason:
            continue
        assert distribution.log, key
        assert distribution.high / distribution.low == pytest.approx(FACTOR**2, rel=0.1), key
    optimiser = {
        "network": {"network.lr", "network.weight_decay"},
        "head": {"head.lr", "head.loss_reduction", "head.clip_grad_norm", "head.batch_size"},
        "posthoc": set(),
    }
    if name == "balcal":  # its authors use no weight decay
        optimiser["network"] = {"network.lr"}
    assert optimiser[kind] <= set(settings)
    assert not any("epochs" in key for key in settings)  # one number of epochs for all
