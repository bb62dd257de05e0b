"""Metrics of other libraries, which a plug-in adds."""

import numpy as np
import pytest
import torch

from tests.metrics.test_without_bins import case
from tune_calib.errors import UserError
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.metrics.summary import evaluate
from tune_calib.spec import plugins

NAMES = {
    "probmetrics": ("proper_l1", "proper_l2"),
    "relplot": ("relplot_smooth_ece",),
    "torchmetrics": ("torchmetrics_ece",),
}


def values_of(library, logits, labels):
    with plugins.restored():
        plugins.load(f"tune_calib.metrics.optional.{library}")
        values = evaluate(logits, labels)
        intervals = bootstrap(logits[None], labels, 2)
    assert not set(NAMES[library]) & intervals.keys()
    return {name: float(values[name]) for name in NAMES[library]}


def test_torchmetrics_counts_bins_that_include_their_left_edge():
    logits, labels = case(2000, 5)
    values = values_of("torchmetrics", logits, labels)
    assert values["torchmetrics_ece"] == pytest.approx(float(evaluate(logits, labels)["ece"]))
    # A confidence of 0.6 is at an edge of the 15 bins.
    rows = torch.tensor([[0.6, 0.4], [0.62, 0.38], [0.58, 0.42]], dtype=torch.float64)
    logits, labels = rows.repeat(10, 1).log(), torch.tensor([1, 0, 0]).repeat(10)
    values = values_of("torchmetrics", logits, labels)
    assert values["torchmetrics_ece"] == pytest.approx((abs(1.22 - 1) + 0.42) / 3)
    assert float(evaluate(logits, labels)["ece"]) == pytest.approx((abs(1.18 - 1) + 0.38) / 3)


def test_the_smooth_ece_of_relplot_is_within_a_few_percent_of_ours():
    logits, labels = case(2000, 5, scale=2.0)
    values = values_of("relplot", logits, labels)
    own = float(evaluate(logits, labels)["smooth_ece"])
    assert values["relplot_smooth_ece"] == pytest.approx(own, rel=0.05, abs=1e-3)


@pytest.mark.slow
def test_proper_errors_are_those_of_probabilities_drawn_by_known_ones():
    logits, labels = case(6000, 3, scale=2.0)
    values = values_of("probmetrics", logits, labels)
    gaps = (logits.softmax(1) - (logits / 2).softmax(1)).numpy()
    true = {"proper_l1": np.abs(gaps).sum(1), "proper_l2": np.sqrt((gaps**2).sum(1))}
    for name, errors in true.items():
        assert values[name] == pytest.approx(errors.mean(), rel=0.1)
    for name, value in values_of("probmetrics", logits / 2, labels).items():
        assert value < values[name] / 10


def test_without_the_library_one_line_says_what_to_install(tmp_path):
    plugin = tmp_path / "absent.py"
    plugin.write_text(
        "from tune_calib.metrics.optional import require_library\n\nrequire_library('absent_one')\n"
    )
    message = r"absent.py line 3: needs another library: pip install absent_one$"
    with plugins.restored(), pytest.raises(UserError, match=message):
        plugins.load(str(plugin))
