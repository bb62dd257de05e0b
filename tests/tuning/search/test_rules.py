"""Rules that end suggestions early, by numbers worked out by hand."""

from math import nan

import pytest

from tune_calib.tuning.search.definition import Objective, SuggestionResult
from tune_calib.tuning.search.rules import LEAST_PAIRS, Halving, Race, Tau, compute_taus

NLL = Objective(("nll",), 0.01)
ACCURACY = Objective(("accuracy",), 0.01)


def stages_of(values, drops=None, status="done"):
    drops = drops or [0.0] * len(values)
    pairs = zip(values, drops, strict=True)
    return [SuggestionResult(status, (value,), drop) for value, drop in pairs]


def race_of(values, drops=None, objective=NLL):
    """A race whose complete suggestions have values by seed."""
    drops = drops or [[0.0] * len(row) for row in values]
    passed = {n: stages_of(*pair) for n, pair in enumerate(zip(values, drops, strict=True))}
    results = {}
    for number, stages in passed.items():
        value = sum(stage.values[0] for stage in stages) / len(stages)
        drop = sum(stage.drop for stage in stages) / len(stages)
        results[number] = SuggestionResult("done", (value,), drop)
    return Race(objective, results, passed)


COMPLETE = [[1.0, 2.0], [2.0, 3.0], [3.0, 4.5]]


def test_a_suggestion_is_compared_with_the_incumbent_on_the_seeds_that_it_has():
    race = race_of(COMPLETE)
    assert not race.excludes(stages_of([1.0]))  # a tie
    assert race.excludes(stages_of([1.0 + 1e-6]))
    # The incumbent has 2 at the second seed: means over both count.
    assert not race.excludes(stages_of([1.3, 1.7]))
    assert race.excludes(stages_of([0.9, 2.2]))


def test_more_is_better_for_accuracy():
    race = race_of([[-value for value in row] for row in COMPLETE], objective=ACCURACY)
    assert race.excludes(stages_of([-1.01]))
    assert not race.excludes(stages_of([-0.99]))


def test_the_sampler_reads_the_mean_of_the_incumbent_plus_the_difference():
    drops = [[0.002, 0.006], [0.0, 0.0], [0.0, 0.0]]
    estimate = race_of(COMPLETE, drops).estimate(stages_of([1.5], [0.005]))
    assert estimate.values == (pytest.approx(1.5 + 0.5),)
    assert estimate.drop == pytest.approx(0.004 + 0.003)


def test_nothing_is_excluded_before_a_suggestion_is_complete():
    assert not race_of([]).excludes(stages_of([100.0], [1.0]))
    assert race_of(COMPLETE[:1]).excludes(stages_of([100.0]))


def test_a_mean_loss_of_accuracy_beyond_the_guard_excludes():
    race = race_of(COMPLETE)
    assert not race.excludes(stages_of([0.0, 0.0], [0.015, 0.005]))
    assert race.excludes(stages_of([0.0, 0.0], [0.015, 0.006]))


def test_the_incumbent_is_within_the_guard_if_any_is():
    drops = [[0.5, 0.5], [0.0, 0.0], [0.0, 0.0]]
    race = race_of(COMPLETE, drops)
    assert not race.excludes(stages_of([1.9]))
    assert race.excludes(stages_of([2.1]))


def test_without_an_incumbent_only_the_accuracy_excludes():
    race = race_of(COMPLETE, [[0.02, 0.02], [0.03, 0.03], [0.04, 0.04]])
    assert not race.is_within
    assert not race.excludes(stages_of([100.0], [0.0]))
    assert race.excludes(stages_of([1.0], [0.02]))
    assert race.estimate(stages_of([1.5], [0.03])).drop == pytest.approx(0.03)


@pytest.mark.parametrize("status", ["diverged", "crashed"])
def test_a_suggestion_with_a_failed_seed_gets_no_further_one(status):
    failed = [*stages_of([1.0]), SuggestionResult(status)]
    assert race_of(COMPLETE).excludes(failed)
    assert race_of([]).excludes(failed)


def test_a_trial_at_chance_ends_its_suggestion():
    result = SuggestionResult("done", (0.0,), 0.0, at_chance=True)
    assert race_of(COMPLETE).excludes([result])
    assert race_of(COMPLETE).estimate([result]).at_chance
    assert not race_of([]).excludes([result])


def test_the_best_share_within_the_guard_is_promoted_first():
    ranked = {
        4: stages_of([0.3]),
        1: stages_of([0.2]),
        7: stages_of([0.2]),  # a tie, for which the earlier one wins
        2: stages_of([0.0], [0.05]),
        3: stages_of([0.1], [0.03]),
        5: [SuggestionResult("diverged")],
    }
    halving = Halving(NLL, 3, [Tau(nan, 0), Tau(nan, 0)])
    assert halving.select(ranked, batch_size=3) == [1]
    assert halving.select(ranked, batch_size=9) == [1, 7, 4]
    assert halving.select(ranked, batch_size=12) == [1, 7, 4, 3]  # then the smallest excess
    second = {number: [*stages, *stages] for number, stages in ranked.items()}
    assert halving.select(second, batch_size=9) == [1]
    assert halving.select(second, batch_size=2) == [1]
    assert halving.estimate([*stages_of([0.3]), *stages_of([0.1])]).values == (0.3,)


def test_kendalls_tau_compares_suggestions_that_passed_both_rungs():
    short, long = [1.0, 2.0, 3.0, 4.0, 9.0], [1.0, 3.0, 2.0, 4.0, nan]
    passed = [stages_of([*pair]) for pair in zip(short, long, strict=True)]
    passed[-1] = [*stages_of([9.0]), SuggestionResult("diverged")]
    passed.append(stages_of([0.5]))
    tau, last = compute_taus(NLL, passed, rungs=3)
    assert tau == Tau(pytest.approx((5 - 1) / 6), 4)  # one of six pairs is in the other order
    assert last.pairs == 0


@pytest.mark.parametrize(
    ("value", "count", "is_chance"),
    [
        (-0.5, LEAST_PAIRS - 1, False), (0.0, LEAST_PAIRS, True), (nan, LEAST_PAIRS, True),
        (0.1, 40, False),
    ],
)  # fmt: skip
def test_promotions_stop_when_ranks_agree_no_better_than_by_chance(value, count, is_chance):
    tau = Tau(value, count)
    assert tau.is_chance == is_chance
    promoted = Halving(NLL, 3, [tau]).select({0: stages_of([1.0])}, batch_size=3)
    assert promoted == ([] if is_chance else [0])
