"""Conformal sets by the scores of papers, which a plug-in adds."""

import math

import numpy as np
import pytest
import torch

from tests.metrics.test_without_bins import case
from tune_calib.metrics import conformal
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.metrics.samples import CalibSplit, Samples
from tune_calib.metrics.summary import evaluate
from tune_calib.spec import plugins
from tune_calib.spec.metrics import metrics_of_trials

PLUGIN = "tune_calib.metrics.optional.conformal"
KINDS = ("aps", "unrandomised_aps", "raps", "class_conditional")


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


def parts_of(kind, calib, test):
    """The parts of the probabilities of the classes of both splits that count."""
    if kind != "aps":
        return [1.0] * calib, [1.0] * test
    return [
        torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
        for seed, n in enumerate((calib, test))
    ]


def score(kind, row, label, part=1.0):
    """A score by the definition of its paper."""
    if kind == "class_conditional":
        return 1 - row[label]
    order = sorted(range(len(row)), key=lambda other: -row[other])
    rank = order.index(label) + 1
    penalty = 0.01 * max(0, rank - 5) if kind == "raps" else 0
    return sum(row[other] for other in order[: rank - 1]) + part * row[label] + penalty


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [3, 12])
def test_sets_are_those_of_the_definitions(plugin, kind, classes):
    (logits, labels), (calib, calib_labels) = split(classes, 400)
    rows, calib_rows = logits.softmax(1).tolist(), calib.softmax(1).tolist()
    pairs = list(zip(calib_rows, calib_labels.tolist(), strict=True))
    calib_parts, parts = parts_of(kind, len(calib_rows), len(rows))
    scores = [score(kind, *pair, part) for pair, part in zip(pairs, calib_parts, strict=True)]
    limits = [quantile(scores)] * classes
    if kind == "class_conditional":
        by_class = [[p for p in pairs if p[1] == label] for label in range(classes)]
        limits = [quantile([score(kind, *pair) for pair in of_class]) for of_class in by_class]
    sets = [
        {label for label in range(classes) if score(kind, row, label, part) <= limits[label] + 1e-9}
        for row, part in zip(rows, parts, strict=True)
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


def test_random_parts_take_away_what_whole_probabilities_cover_too_much(plugin):
    # All classes are equally likely, so that whole probabilities are multiples of a quarter.
    (_, labels), (_, calib_labels) = split(4, 20_000)
    uniform = torch.zeros(len(labels), 4)
    batch, calib_batch = torch.stack([uniform, uniform + 1]), torch.stack([uniform, uniform])
    # Ties are broken by the class; the labels are not.
    chance = torch.Generator().manual_seed(2)
    labels, calib_labels = (
        torch.randint(4, shape, generator=chance) for shape in (labels.shape, calib_labels.shape)
    )
    values = evaluate(batch, labels, calib=(calib_batch, calib_labels))
    assert values["unrandomised_aps_size"].tolist() == [4, 4]
    assert values["unrandomised_aps_coverage"].tolist() == [1, 1]
    assert values["aps_size"].tolist() == pytest.approx([3.6, 3.6], abs=0.02)
    assert values["aps_coverage"].tolist() == pytest.approx([0.9, 0.9], abs=0.01)
    alone = evaluate(uniform, labels, calib=(uniform, calib_labels))
    assert values["aps_size"][0] == alone["aps_size"]  # in a batch as alone


def test_a_class_that_calib_lacks_is_in_every_class_conditional_set():
    (logits, labels), (calib, calib_labels) = split(4)
    is_present = calib_labels != 2
    calib_split = CalibSplit(calib[is_present].softmax(-1), calib_labels[is_present])
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
