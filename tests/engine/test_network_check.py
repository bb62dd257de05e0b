"""What rows say of a network on train, select and test, whoever stands on it."""

import pytest
import torch

from tests.support import CPU, drive, rows, run_of, sample, small_spec
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import load_network
from tune_calib.engine.predict import predict
from tune_calib.metrics.summary import evaluate, measure_network_check
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.metrics import BASE
from tune_calib.tuning.ray.trainables import trainable

NETWORK_CHECK = ("accuracy", "nll", "ece", "confidence_gap", "confidence_gap_se")
HEAD = {"method": "retrain", "epochs": 1}
SLOTS = {
    "network": {},
    "network and post-hoc": {"posthoc": {"method": "temperature"}},
    "head": {"head": {**HEAD, "augment": "none"}},
    "head and post-hoc": {
        "head": {**HEAD, "augment": "none"},
        "posthoc": {"method": "temperature"},
    },
    "head on views": {"head": {**HEAD, "augment": "standard", "views": 2}},
}


def row_of(store, out, slots, **run) -> dict:
    config = {**small_spec().model_dump(mode="json"), **slots, "run": {**run_of(out, store), **run}}
    drive(trainable(slots["head"]["method"] if "head" in slots else "ce")(config))
    (row,) = rows(out)
    return row


@pytest.fixture(scope="module")
def expected(trained) -> dict[str, dict[str, float]]:
    """The network check, from its logits."""
    spec, info = small_spec(), DATASETS["digits"]
    network = load_network(spec, trained, CPU)
    development, test = load_development(spec.data, None), load_test(spec.data, None)
    found = {}
    for name, split in {
        "train": development.train,
        "select": development.select,
        "test": test,
    }.items():
        logits = predict(network.method, network.network, split.images, info)[1].double()
        found[name] = {key: float(v) for key, v in evaluate(logits, split.labels).items()}
    return found


@pytest.mark.parametrize("is_search", [False, True])
@pytest.mark.parametrize("name", sample(SLOTS, 2))
def test_a_row_says_how_its_network_fits(name, is_search, trained, expected, tmp_path):
    slots = SLOTS[name]
    row = row_of(trained, tmp_path / "out", slots, is_search=is_search)
    prefix = f"{BASE}/" if slots else ""
    for split in ("train", "select", "test"):
        for metric in NETWORK_CHECK:
            column = f"{prefix}{split}/{metric}"
            if is_search and split == "test":
                assert column not in row
            else:
                assert row[column] == pytest.approx(expected[split][metric], rel=1e-9), column
    assert not any(key.startswith("train/") for key in row if slots)
    assert (f"{BASE}/train/nll" in row) == bool(slots)


@pytest.mark.parametrize("samples", [1, 2, 500])
@pytest.mark.parametrize("scale", [0.1, 1.0, 300.0])
def test_the_gap_is_the_signed_ece_and_its_error_that_of_the_bootstrap(samples, scale):
    chance = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(2, samples, 5, dtype=torch.float64, generator=chance)
    labels = torch.randint(5, (samples,), generator=chance)
    values = evaluate(logits, labels)
    assert torch.allclose(values["confidence_gap"], values["o_ece"] - values["u_ece"])
    for k, classifier in enumerate(logits):
        expected = {name: float(values[name][k]) for name in NETWORK_CHECK}
        assert measure_network_check(classifier, labels) == pytest.approx(expected, rel=1e-12)
    confidence, predicted = logits.softmax(-1).max(-1)
    gaps = confidence - (predicted == labels).double()
    draws = torch.randint(samples, (4000, samples), generator=chance)
    drawn = gaps[:, draws].mean(-1).std(-1)
    assert torch.allclose(values["confidence_gap_se"], drawn, rtol=0.06)
