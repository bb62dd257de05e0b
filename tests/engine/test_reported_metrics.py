"""Which metrics a trial reports, in a search and outside."""

import math

import pytest

from tests.metrics.test_without_bins import case
from tune_calib.engine.evaluate import SplitLogits, evaluate_one
from tune_calib.spec.metrics import METRICS, column, metrics_of_trials
from tune_calib.spec.slots.base import PostHocSlot


def split(samples, is_right=False):
    logits, labels = case(samples, 4)
    return SplitLogits(logits[None].float(), logits.argmax(-1) if is_right else labels)


@pytest.mark.parametrize("posthoc", [None, PostHocSlot(method="temperature")])
def test_a_search_reports_what_it_may_optimise_and_a_ladder_everything(posthoc):
    parts = {"select": split(300), "calib": split(200)}
    of_search = evaluate_one(parts, posthoc).metrics
    quick = [name for name in metrics_of_trials() if METRICS[name].is_in_searches]
    assert set(of_search) == {column("select", name) for name in quick}
    of_ladder = evaluate_one({**parts, "test": split(250)}, posthoc).metrics
    assert set(of_ladder) == {
        column(name, metric) for name in ("select", "test") for metric in metrics_of_trials()
    }
    # The same trial has the same numbers in both.
    assert of_search == {name: of_ladder[name] for name in of_search}


def test_a_metric_that_is_not_defined_is_left_out_and_is_null_in_the_row():
    evaluation = evaluate_one(
        {"select": split(50), "calib": split(50), "test": split(50, True)}, None
    )
    absent = {"error_auroc", "entropy_wrong"}
    assert {column("select", name) for name in absent} <= set(evaluation.metrics)
    assert not {column("test", name) for name in absent} & set(evaluation.metrics)
    assert not any(map(math.isnan, evaluation.metrics.values()))
