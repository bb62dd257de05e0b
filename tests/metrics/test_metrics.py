import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from tests.parity_compare.metrics import left_table
from tests.support import sample
from tune_calib.metrics import calibration, ood, scoring
from tune_calib.metrics.binning import adaptive_table, bin_table
from tune_calib.metrics.samples import Samples
from tune_calib.metrics.summary import evaluate
from tune_calib.spec.metrics import METRICS, metrics_of_trials


def random_case(samples=400, classes=7, heads=3, scale=3.0, dtype=torch.float64):
    chance = torch.Generator().manual_seed(samples + classes)
    logits = scale * torch.randn(heads, samples, classes, generator=chance, dtype=dtype)
    return logits, torch.randint(classes, (samples,), generator=chance)


def naive_ece(probs, labels, bins=15):
    confidence, predicted = probs.max(1), probs.argmax(1)
    total = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            gap = confidence[inside].mean() - (predicted[inside] == labels[inside]).mean()
            total += inside.mean() * abs(gap)
    return total


def test_ece_equals_a_loop_over_bins():
    logits, labels = random_case()
    probs = logits.softmax(-1)
    expected = [naive_ece(head.numpy(), labels.numpy()) for head in probs]
    assert calibration.ece(Samples(probs, labels)).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "samples", [400, 405, 7]
)  # shared evenly by 15 bins or not, and fewer than bins
def test_edges_of_adaptive_bins_are_interpolated_as_in_the_authors_code(samples):
    logits, labels = random_case(samples)
    probs = logits.softmax(-1)
    table = adaptive_table(probs, labels)
    for head, lower, upper in zip(probs, table.lower, table.upper, strict=True):
        confidence = np.sort(head.max(1).values.numpy())
        edges = np.interp(np.linspace(0, samples, 16), np.arange(samples), confidence)
        assert lower.tolist() == pytest.approx(edges[:-1], abs=1e-15)
        assert upper.tolist() == pytest.approx(edges[1:], abs=1e-15)


def test_scores_equal_scikit_learn():
    logits, labels = random_case(classes=2)
    probs = logits[0].softmax(-1)
    nll = scoring.nll(Samples(probs, labels, logits[0]))
    assert float(nll) == pytest.approx(log_loss(labels, probs.numpy()), rel=1e-9)
    two_class = 2 * brier_score_loss(labels, probs[:, 1].numpy())
    assert float(scoring.brier(Samples(probs, labels))) == pytest.approx(two_class, rel=1e-9)


def test_a_head_batch_gives_the_numbers_of_each_head():
    logits, labels = random_case()
    together = evaluate(logits, labels)
    for k in range(len(logits)):
        alone = evaluate(logits[k : k + 1], labels)
        assert {n: v[k].item() for n, v in together.items()} == pytest.approx(
            {n: v.item() for n, v in alone.items()}, rel=1e-12
        )


@pytest.mark.parametrize("scale", sample([0.0, 0.1, 3.0, 300.0], 2))
@pytest.mark.parametrize("samples", [1, 2, 7, 400])
@pytest.mark.parametrize("dtype", sample([torch.float32, torch.float64], 1))
def test_every_metric_is_within_its_bounds(scale, samples, dtype):
    logits, labels = random_case(samples=samples, scale=scale, dtype=dtype)
    values = evaluate(logits, labels, (logits, labels))
    assert set(values) == set(metrics_of_trials())
    right = evaluate(logits, labels)["accuracy"]
    undefined = {
        "entropy_right": right == 0,
        "entropy_wrong": right == 1,
        "error_auroc": (right == 0) | (right == 1),
    }
    for name, value in values.items():
        assert value.shape == (3,)
        known = ~undefined.get(name, right.isnan())
        assert (value.isnan() == ~known).all(), name
        assert (value[known] >= METRICS[name].lower - 1e-6).all(), name
        assert (value[known] <= METRICS[name].upper + 1e-5).all(), name
    parts = values["o_ece"] + values["u_ece"]
    assert torch.allclose(parts, values["ece"], atol=1e-6)


def test_metrics_of_a_calibrated_and_a_wrong_predictor():
    sure = torch.tensor([[1.0, 0.0]] * 4)
    right, wrong = torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.long)
    assert calibration.ece(Samples(sure, right)) == 0
    samples = Samples(sure, wrong)
    assert calibration.ece(samples) == 1
    table = bin_table(sure, wrong)
    assert calibration.o_ece(samples) == 1
    assert calibration.u_ece(samples) == 0
    assert table.count[-1] == 4
    assert table.count[:-1].sum() == 0


@pytest.mark.parametrize("columns", [[0, 1, 2], [2, 0, 1]])
def test_classwise_ece_is_the_mean_over_all_classes_in_any_order(columns):
    probs = torch.tensor([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1]])
    labels = torch.tensor(columns).argsort()[torch.tensor([0, 0, 1, 1])]
    assert float(calibration.cece(Samples(probs[:, columns], labels))) == pytest.approx(1 / 6)


def test_an_edge_belongs_to_the_bin_below():
    probs = torch.tensor([[0.6, 0.4]], dtype=torch.float64)
    assert bin_table(probs, torch.tensor([0]), bins=5).count.argmax() == 2
    assert left_table(probs, torch.tensor([0]), bins=5).count.argmax() == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entropy_of_a_certain_and_of_an_even_prediction(dtype):
    probs = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25] * 4], dtype=dtype)
    assert ood.entropy(probs).tolist() == pytest.approx([0.0, np.log(4)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7, 3), (200, 40), (3, 200, 40)])
def test_the_brier_score_in_parts_has_the_digits_of_the_whole(shape, dtype, monkeypatch):
    chance = torch.Generator().manual_seed(0)
    probs = (3 * torch.randn(shape, generator=chance, dtype=dtype)).softmax(-1)
    labels = torch.randint(shape[-1], shape[-2:-1], generator=chance)
    squares = (probs - torch.nn.functional.one_hot(labels, shape[-1]).to(dtype)).square()
    whole = squares.sum(-1).mean(-1)
    for chunk in (1, 11 * shape[-1], scoring._CHUNK):
        monkeypatch.setattr(scoring, "_CHUNK", chunk)
        assert torch.equal(scoring.brier(Samples(probs, labels)), whole)


def test_ood_scores():
    chance = torch.Generator().manual_seed(0)
    known, foreign = torch.randn(90, generator=chance) + 1, torch.randn(110, generator=chance)
    truth = np.repeat([1, 0], [90, 110])
    expected = roc_auc_score(truth, torch.cat([known, foreign]).numpy())
    assert ood.separation(known, foreign)[0] == pytest.approx(expected)
    assert ood.separation(known + 100, foreign) == (1, 1, 0)
    assert ood.separation(foreign, foreign)[2] == pytest.approx(0.95, abs=0.02)
