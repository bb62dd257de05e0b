"""Given networks where trials are carried out."""

import itertools
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from tests.engine.test_weights import network_of, saved
from tests.support import CPU, sample
from tests.tuning.ray.test_shared_outputs import run
from tune_calib.data.augment import normalise
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.resolve import resolve_files

HEAD = {"epochs": 2, "augment": "none"}


def planned(file: Path, store: Path, names, seeds=1, **data):
    settings = {
        "data": {"norm": "dataset", **data},
        "network": {"backbone": "small_cnn", "weights": str(file), "epochs": 0},
        "head": HEAD,
    }
    request = ResolvedRequest(settings, Seeds.count(seeds, None, None)).with_recipe()
    return expand(build_comparison(names), resolve_files(request, None, store))


def saw_what_is_held_out(path: Path) -> Path:
    """A network whose head interpolates select and calib of digits, and little else."""
    network = network_of().eval()
    splits = load_development(DataSlot(), None)
    images = torch.cat([splits.select.images, splits.calib.images])
    labels = torch.cat([splits.select.labels, splits.calib.labels])
    with torch.no_grad():
        features = network.features(normalise(images, DataSlot().info)).double()
        wanted = F.one_hot(labels, 10).double()
        network.head.weight.copy_(torch.linalg.pinv(features).matmul(wanted).T)
        network.head.bias.zero_()
    return saved(path, network)


@pytest.mark.parametrize("names", sample([["ce"], ["temperature"], ["retrain"]], 1))
def test_a_network_trained_on_the_hold_out_is_refused_before_test(names, tmp_path):
    file, store = saw_what_is_held_out(tmp_path / "w.safetensors"), Store(tmp_path / "s")
    trials = planned(file, store.root, names)
    with pytest.raises(UserError, match="of test: it was trained on the held-out images"):
        run(tmp_path / "out", trials, store)
    run(tmp_path / "search", trials, store, is_search=True)
    run(tmp_path / "other", planned(file, store.root, names, holdout="test"), store)


def test_two_frozen_networks_share_a_store_and_no_artifact(tmp_path):
    store = Store(tmp_path / "s")
    names = ["ce", "temperature", "retrain", "retrain+temperature"]
    found = []
    for seed in (1, 2):
        file = saved(tmp_path / f"{seed}.safetensors", network_of(seed=seed))
        trials = planned(file, store.root, names, seeds=2, holdout="test")
        assert len(trials) == 6
        found.append(run(tmp_path / str(seed), trials, store))
    assert not set(found[0]) & set(found[1])
    assert [len(rows) for rows in found] == [6, 6]
    assert len({row["network_id"] for rows in found for row in rows.values()}) == 2
    for rows in found:
        own = next(row for row in rows.values() if row["rung_label"] == "ce")
        for row in rows.values():
            # A given network has a network check like any other.
            base = "" if row is own else "base/"
            for split in ("train", "select", "test"):
                for name in ("accuracy", "confidence_gap"):
                    assert row[f"{base}{split}/{name}"] == own[f"{split}/{name}"]
            assert row["network_seed"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("augment", ["none", "standard"])
def test_augmentation_of_heads_decides_the_views(augment, tmp_path):
    store = Store(tmp_path / "s")
    file = saved(tmp_path / "w.safetensors", network_of())
    (trial,) = planned(file, store.root, ["retrain"], holdout="test")
    head = {**trial.spec.head.model_dump(), "augment": augment, "views": 3}
    spec = TrialSpec.build(
        data=trial.spec.data.model_dump(), network=trial.spec.network.model_dump(), head=head
    )
    assert spec.network_id == trial.spec.network_id
    run(tmp_path / "out", [trial], store)
    splits = load_development(spec.data, None), load_test(spec.data, None)
    bank = ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), store, lambda: splits, CPU)
    assert bank.views == (3 if augment == "standard" else 1)
    features = [bank.train(view).features for view in range(bank.views)]
    for first, second in itertools.combinations(features, 2):
        assert not torch.allclose(first, second, atol=1e-3)
