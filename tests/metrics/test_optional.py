"""Metrics of other libraries, which a plug-in adds."""

import numpy as np
import pytest
import torch

from tests.metrics.test_without_bins import case
from tune_calib.metrics.summary import evaluate
from tune_calib.spec import plugins
from tune_calib.spec.metrics import METRICS

PLUGIN = "tune_calib.metrics.optional.libraries"


@pytest.fixture
def plugin():
    with plugins.restored():
        plugins.load(PLUGIN)
        yield


def value(name, logits, labels):
    return float(METRICS[name].compute(logits, labels))


def test_torchmetrics_counts_bins_that_include_their_left_edge(plugin):
    logits, labels = case(2000, 5)
    ours = float(evaluate(logits, labels)["ece"])
    assert value("torchmetrics_ece", logits, labels) == pytest.approx(ours)
    # A confidence of 0.6 is at an edge of the 15 bins.
    rows = torch.tensor([[0.6, 0.4], [0.62, 0.38], [0.58, 0.42]], dtype=torch.float64)
    logits, labels = rows.repeat(10, 1).log(), torch.tensor([1, 0, 0]).repeat(10)
    expected = pytest.approx((abs(1.22 - 1) + 0.42) / 3)
    assert value("torchmetrics_ece", logits, labels) == expected
    assert float(evaluate(logits, labels)["ece"]) == pytest.approx((abs(1.18 - 1) + 0.38) / 3)


def test_the_smooth_ece_of_relplot_is_within_a_few_percent_of_ours(plugin):
    logits, labels = case(2000, 5, scale=2.0)
    ours = float(evaluate(logits, labels)["smooth_ece"])
    assert value("relplot_smooth_ece", logits, labels) == pytest.approx(ours, rel=0.05, abs=1e-3)


@pytest.mark.slow
def test_proper_errors_are_those_of_probabilities_drawn_by_known_ones(plugin):
    logits, labels = case(6000, 3, scale=2.0)
    gaps = (logits.softmax(1) - (logits / 2).softmax(1)).numpy()
    true = {"proper_l1": np.abs(gaps).sum(1), "proper_l2": np.sqrt((gaps**2).sum(1))}
    for name, errors in true.items():
        assert value(name, logits, labels) == pytest.approx(errors.mean(), rel=0.1)
        assert value(name, logits / 2, labels) < errors.mean() / 10
