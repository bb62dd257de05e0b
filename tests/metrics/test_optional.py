"""Metrics of other libraries, which a plug-in adds."""

import importlib.util

import numpy as np
import pytest
import torch

from tests.metrics.test_without_bins import case
from tune_calib.errors import UserError
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.metrics.summary import compute_plugin_metrics, evaluate
from tune_calib.spec import plugins
from tune_calib.spec.metrics import METRICS, metrics_of_trials

PLUGIN = "tune_calib.metrics.optional.libraries"
NAMES = {"proper_l1", "proper_l2", "relplot_smooth_ece", "torchmetrics_ece"}


@pytest.fixture
def plugin():
    with plugins.restored():
        plugins.load(PLUGIN)
        yield


def value(name, logits, labels):
    return float(METRICS[name].compute(logits, labels))


def test_torchmetrics_counts_bins_that_include_their_left_edge(plugin):
    logits, labels = case(2000, 5)
    own = float(evaluate(logits, labels)["ece"])
    assert value("torchmetrics_ece", logits, labels) == pytest.approx(own)
    # A confidence of 0.6 is at an edge of the 15 bins.
    rows = torch.tensor([[0.6, 0.4], [0.62, 0.38], [0.58, 0.42]], dtype=torch.float64)
    logits, labels = rows.repeat(10, 1).log(), torch.tensor([1, 0, 0]).repeat(10)
    expected = pytest.approx((abs(1.22 - 1) + 0.42) / 3)
    assert value("torchmetrics_ece", logits, labels) == expected
    assert float(evaluate(logits, labels)["ece"]) == pytest.approx((abs(1.18 - 1) + 0.38) / 3)


def test_the_smooth_ece_of_relplot_is_within_a_few_percent_of_ours(plugin):
    logits, labels = case(2000, 5, scale=2.0)
    own = float(evaluate(logits, labels)["smooth_ece"])
    assert value("relplot_smooth_ece", logits, labels) == pytest.approx(own, rel=0.05, abs=1e-3)


@pytest.mark.slow
def test_proper_errors_are_those_of_probabilities_drawn_by_known_ones(plugin):
    logits, labels = case(6000, 3, scale=2.0)
    gaps = (logits.softmax(1) - (logits / 2).softmax(1)).numpy()
    true = {"proper_l1": np.abs(gaps).sum(1), "proper_l2": np.sqrt((gaps**2).sum(1))}
    for name, errors in true.items():
        assert value(name, logits, labels) == pytest.approx(errors.mean(), rel=0.1)
        assert value(name, logits / 2, labels) < errors.mean() / 10


def test_they_are_computed_only_with_the_plugin_and_once_for_each_split(plugin):
    logits, labels = case(60, 3)
    assert set(metrics_of_trials()) >= NAMES
    assert compute_plugin_metrics(logits, labels).keys() == NAMES
    assert not NAMES & bootstrap(logits[None], labels, 2).keys()
    plugins.use(())
    assert not NAMES & {*metrics_of_trials(), *evaluate(logits, labels)}


def test_without_the_libraries_there_is_nothing_to_register(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", find_none)
    monkeypatch.setattr(plugins, "_ran", {})
    with plugins.restored(), pytest.raises(UserError, match="libraries: it registers nothing"):
        plugins.load(PLUGIN)


FOUND = importlib.util.find_spec


def find_none(name, *args):
    return None if name in ("probmetrics", "relplot", "torchmetrics") else FOUND(name, *args)
