"""Conformal sets by the scores of papers, which a plug-in adds."""

import math

import numpy as np
import pytest
import torch

from tests.metrics.test_without_bins import case
from tests.support import here
from tune_calib.metrics import conformal
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.metrics.samples import CalibSplit, Samples
from tune_calib.metrics.summary import evaluate
from tune_calib.spec import plugins
from tune_calib.spec.metrics import metrics_of_trials

PLUGIN = "tune_calib.metrics.optional.conformal"
KINDS = ("aps", "raps", "class_conditional")


@pytest.fixture
def plugin():
    with plugins.restored():
        plugins.load(PLUGIN)
        yield


def split(classes, samples=900):
    """Logits and labels of test and calib."""
    logits, labels = case(samples, classes)
    half = samples // 2
    return (logits[:half], labels[:half]), (logits[half:], labels[half:])


def quantile(scores):
    rank = math.ceil((len(scores) + 1) * 0.9)
    return sorted(scores)[rank - 1] if rank <= len(scores) else math.inf


def score(kind, row, label):
    """A score by the definition of its paper."""
    if kind == "class_conditional":
        return 1 - row[label]
    order = sorted(range(len(row)), key=lambda other: -row[other])
    rank = order.index(label) + 1
    penalty = 0.01 * max(0, rank - 5) if kind == "raps" else 0
    return sum(row[other] for other in order[:rank]) + penalty


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [3, 12])
def test_sets_are_those_of_the_definitions(plugin, kind, classes):
    (logits, labels), (calib, calib_labels) = split(classes, 400)
    rows, calib_rows = logits.softmax(1).tolist(), calib.softmax(1).tolist()
    pairs = list(zip(calib_rows, calib_labels.tolist(), strict=True))
    limits = [quantile([score(kind, row, label) for row, label in pairs])] * classes
    if kind == "class_conditional":
        by_class = [[p for p in pairs if p[1] == label] for label in range(classes)]
        limits = [quantile([score(kind, *pair) for pair in of_class]) for of_class in by_class]
    sets = [
        {label for label in range(classes) if score(kind, row, label) <= limits[label] + 1e-9}
        for row in rows
    ]
    values = evaluate(logits, labels, calib=(calib, calib_labels))
    assert float(values[f"{kind}_size"]) == pytest.approx(np.mean([len(held) for held in sets]))
    covers = [label in held for label, held in zip(labels.tolist(), sets, strict=True)]
    assert float(values[f"{kind}_coverage"]) == pytest.approx(np.mean(covers))


@pytest.mark.parametrize("kind", KINDS)
def test_sets_cover_nine_of_ten(plugin, kind):
    test, calib = split(10, 8000)
    coverage = float(evaluate(*test, calib=calib)[f"{kind}_coverage"])
    assert coverage == pytest.approx(0.9, abs=0.02)


def test_a_class_that_calib_lacks_is_in_every_class_conditional_set():
    (logits, labels), (calib, calib_labels) = split(4)
    kept = calib_labels != 2
    calib_split = CalibSplit(calib[kept].softmax(-1), calib_labels[kept])
    samples = Samples(logits.softmax(-1), labels, calib=calib_split)
    sets = conformal._class_conditional_sets(samples)
    assert bool(sets[:, 2].all())
    assert not bool(sets[:, 0].all())


def test_metrics_of_the_plugin_have_the_intervals_of_a_mean_and_are_absent_without_it(plugin):
    test, calib = split(5)
    added = {f"{kind}_{what}" for kind in KINDS for what in ("size", "coverage")}
    assert added <= set(metrics_of_trials())
    batch = torch.stack([test[0], 2 * test[0]])
    calib_batch = torch.stack([calib[0], 2 * calib[0]]), calib[1]
    intervals = bootstrap(batch, test[1], 200, calib=calib_batch)
    values = evaluate(batch, test[1], calib=calib_batch)
    for name in added:
        assert intervals[name].lower.le(values[name]).all()
        assert intervals[name].upper.ge(values[name]).all()
    plugins.use(())
    assert not added & set(metrics_of_trials())
    assert not added & evaluate(*test, calib=calib).keys()


@pytest.mark.slow
def test_a_run_with_the_plugin_has_its_columns(tmp_path):
    options = ["--dataset", "digits", "--address", "none", "--set", "network.epochs=10"]
    options += ["--bootstrap", "100", "--plugin", PLUGIN, "--out", tmp_path / "run"]
    done = here("compare", "ce", "temperature", *options)
    assert done.returncode == 0, done.stderr
    words = ["--metric", "aps_size", "--metric", "aps_coverage", "--intervals"]
    shown = here("report", tmp_path / "run", *words, "--plugin", PLUGIN)
    assert "APS set size at 90 %" in shown.stdout
    assert shown.stdout.count("[") >= 4


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 100])
def test_sets_are_those_of_torchcp(plugin, classes):
    score = pytest.importorskip("torchcp.classification.score")
    predictor = pytest.importorskip("torchcp.classification.predictor")
    test, calib = split(classes, 4000)
    values = evaluate(*test, calib=calib)
    raps = score.RAPS(randomized=False, penalty=conformal.PENALTY, kreg=conformal.FREE_RANKS)
    oracles = {
        "aps": predictor.SplitPredictor(score.APS(randomized=False)),
        "raps": predictor.SplitPredictor(raps),
        "class_conditional": predictor.ClassConditionalPredictor(score.LAC()),
    }
    for kind, oracle in oracles.items():
        oracle.calculate_threshold(*calib, 0.1)
        sets = oracle.predict_with_logits(test[0]).bool()
        expected = sets.sum(-1).double().mean()
        assert float(values[f"{kind}_size"]) == pytest.approx(float(expected), abs=2e-3 * classes)
        covers = sets.gather(1, test[1][:, None]).double().mean()
        assert float(values[f"{kind}_coverage"]) == pytest.approx(float(covers), abs=1e-3)
