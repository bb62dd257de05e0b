"""Pools: averages of the predictions of networks, over seeds, methods and imports."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

import tune_calib
from tests.support import CPU, SETTINGS
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.classifier import ensure_classifier
from tune_calib.engine.pools import average, measure_diversity
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.results.tables import read_slots, read_table
from tune_calib.spec.trial import TrialSpec

PLAIN = {name: SETTINGS[name] for name in ("network.augment", "data.train_fraction")}
QUICK = {"epochs": 2, "set": PLAIN, "address": "none"}
BOTH = {"method": "pool:ce", "set": {"pool": {"posthoc": "temperature"}}}
LOGITS = {"method": "pool:ce", "set": {"pool": {"average": "logits"}}}
METHODS = ["pool:ce:ls", "pool:ce", "pool:ce+temperature", BOTH, LOGITS, "ce", "temperature"]


def specs(out):
    """The trial specs and rows of a run by label and seed."""
    found = {}
    for row in read_table(out, "trials").to_pylist():
        spec = TrialSpec.build(**read_slots(row))
        assert spec.hash == row["spec_hash"]
        found[row["rung_label"], row["network_seed"]] = spec, row
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("pools") / "out"
    tune_calib.compare(METHODS, **QUICK, seeds=2, shift=["noise"], bootstrap=100, out=out)
    return out


def bank_of(out, spec):
    return FeatureBank(Store(out / "store").folder("banks", bank_key(spec, None).identity))


def test_a_pool_averages_the_members_that_its_spec_lists(run):
    found = specs(run)
    assert len([label for label, _ in found if label == "pool:ce:ls"]) == 2
    for (label, _), (spec, _) in found.items():
        if not spec.members:
            continue
        members = []
        for member in spec.members:
            classifier = ensure_classifier(member, Store(run / "store"), None, CPU)
            split = bank_of(run, member).test()
            members.append(classifier.logits(split).logits[0].numpy())
        expected = log_softmax(np.mean(members, 0), -1)
        if "logits" not in label:
            expected = np.log(np.mean([softmax(logits, -1) for logits in members], 0))
        logits = bank_of(run, spec).test().logits.numpy()
        assert log_softmax(logits, -1) == pytest.approx(expected, abs=1e-5)
    seeds = [member.network.seed for member in found["pool:ce", 0][0].members]
    methods = [member.network.method for member in found["pool:ce:ls", 1][0].members]
    assert (seeds, methods) == ([0, 1], ["ce", "ls"])


def test_the_mean_brier_score_of_the_members_is_that_of_the_pool_plus_its_ambiguity(run):
    found, recorded = specs(run), {}
    for row in read_table(run, "curves").to_pylist():
        recorded[row["spec_hash"], row["name"]] = row["value"]
    for split in ("select", "test"):
        mean = np.mean([found["ce", seed][1][f"{split}/brier"] for seed in range(2)])
        spec, row = found["pool:ce", 0]
        ambiguity = recorded[spec.hash, f"{split}/ambiguity"]
        assert ambiguity > 0
        assert mean == pytest.approx(row[f"{split}/brier"] + ambiguity, abs=1e-7)
    spec, _ = found["pool:ce average=logits", 0]
    assert (spec.hash, "test/ambiguity") not in recorded
    assert recorded[spec.hash, "test/disagreement"] > 0


def test_diversity_counts_the_pairs_of_members_that_disagree():
    logits = torch.randn(4, 50, 3, generator=torch.manual_seed(0))
    predicted = logits.argmax(-1)
    expected = np.mean([float((a != b).double().mean()) for a, b in combinations(predicted, 2)])
    assert measure_diversity(list(logits))["disagreement"] == pytest.approx(expected)
    alone = average([logits[0]])
    assert torch.allclose(alone, logits[0].double().log_softmax(-1))
    assert measure_diversity([logits[0], logits[0]]) == {"disagreement": 0.0, "ambiguity": 0.0}


def test_every_trial_has_metrics_intervals_and_shifts(run):
    hashes = {spec.hash for spec, _ in specs(run).values()}
    for table in ("intervals", "shifts"):
        assert set(read_table(run, table)["spec_hash"].to_pylist()) == hashes
    for _, row in specs(run).values():
        assert row["test/nll"] > 0
        assert row["test/conformal_size"] > 0


def test_members_that_are_not_compared_are_trained_without_rows(run, tmp_path):
    methods = ["pool:ce+temperature"]
    tune_calib.compare(methods, **QUICK, seeds=2, out=tmp_path)
    (spec, row), *others = specs(tmp_path).values()
    assert not others
    assert all(has_network(member, Store(tmp_path / "store")) for member in spec.members)
    assert row["test/nll"] == specs(run)["pool:ce+temperature", 0][1]["test/nll"]
    with pytest.raises(UserError, match=r"a pool of others is another one; set pool\.size"):
        tune_calib.compare(methods, **QUICK, seeds=3, out=tmp_path)


def test_a_pool_diverges_with_a_member(tmp_path):
    settings = {**QUICK, "set": {**PLAIN, "network.lr": 1e30, "network.clip_grad_norm": None}}
    tune_calib.compare(["pool:ce"], **settings, seeds=2, out=tmp_path)
    (row,) = read_table(tmp_path, "trials").to_pylist()
    assert (row["rung_label"], row["status"]) == ("pool:ce", "diverged")


def test_seeds_are_divided_into_disjoint_pools(tmp_path):
    settings = {**QUICK, "set": {**PLAIN, "pool.size": 2}, "epochs": 1}
    tune_calib.compare(["pool:ce"], **settings, seeds=4, out=tmp_path)
    members = []
    for spec, _ in specs(tmp_path).values():
        members.append([member.network.seed for member in spec.members])
    assert members == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("methods", "options", "message"),
    [
        (["pool:ce"], {}, "'pool:ce' has one member"),
        (["pool:ce"], {"seeds": 4, "set": {"pool.size": 3}}, "not divided into pools of 3"),
        (["pool:ce:tst"], {"seeds": 2}, "each name before . is a network method"),
        (["pool:ce+mac_cal"], {"seeds": 2}, "a head is trained on one network"),
        (["ce"], {"seeds": 2, "set": {"pool.size": 2}}, "none has a pool method"),
        (["pool:ce"], {"seeds": 2, "tune": 4}, "a pool has no search"),
    ],
)
@pytest.mark.every_case
def test_what_cannot_be_pooled_is_refused(methods, options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        tune_calib.compare(methods, **options, out=tmp_path, address="none")
