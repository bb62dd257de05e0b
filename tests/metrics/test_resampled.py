"""Shifted images under draws of the samples: each draw equals the metric of the drawn samples."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tests.metrics.test_without_bins import case
from tests.support import sample
from tune_calib.metrics.bootstrap import draw, drawn_detection, drawn_under_corruption
from tune_calib.metrics.ood import detection
from tune_calib.metrics.summary import under_corruption


def drawn_indices(counts):
    return torch.arange(len(counts)).repeat_interleave(counts.long())


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sizes", sample([((20, 7),), ((1, 1),), ((40, 300),), ((300, 120),)], 1))
@pytest.mark.parametrize("scale", sample([0.3, 1.0, 2000.0], 1))
def test_detection_on_each_draw_is_that_of_the_drawn_samples(sizes, ties, scale):
    (inside, _), (outside, _) = (case(size, 4, ties=ties) for size in sizes)
    inside, outside = scale * inside, 0.6 * scale * outside.flip(0)
    counts_inside, foreign = (draw(torch.arange(size), 12, seed) for seed, size in enumerate(sizes))
    draws = drawn_detection(inside, outside, counts_inside, foreign)
    for number in range(12):
        wanted = detection(
            inside[drawn_indices(counts_inside[number])], outside[drawn_indices(foreign[number])]
        )
        for name, values in draws.items():
            assert float(values[number]) == pytest.approx(wanted[name], abs=1e-12), name


def test_the_standard_error_is_that_of_a_loop_of_scikit_learn():
    (inside, _), (outside, _) = case(200, 4), case(150, 4)
    outside = 0.5 * outside
    counts_inside, foreign = draw(torch.arange(200), 300, 0), draw(torch.arange(150), 300, 1)
    spread = drawn_detection(inside, outside, counts_inside, foreign)["auroc"].std()
    scores = torch.cat([logits.softmax(-1).amax(-1) for logits in (inside, outside)])
    truth = torch.cat([torch.ones(200), torch.zeros(150)])
    errors = [
        roc_auc_score(truth, scores, sample_weight=torch.cat(counts))
        for counts in zip(counts_inside, foreign, strict=True)
    ]
    assert float(spread) == pytest.approx(np.std(errors, ddof=1), rel=1e-9)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("size", [(1, 3), (40, 3), (300, 5)])
def test_corruptions_on_each_draw_are_those_of_the_drawn_samples(size, ties):
    logits, labels = case(*size, ties=ties)
    counts = draw(torch.arange(len(labels)), 12, seed=3)
    draws = drawn_under_corruption(logits, labels, counts)
    for number, weights in enumerate(counts):
        wanted = under_corruption(logits[drawn_indices(weights)], labels[drawn_indices(weights)])
        for name, values in draws.items():
            assert float(values[number]) == pytest.approx(wanted[name], abs=1e-12), name
