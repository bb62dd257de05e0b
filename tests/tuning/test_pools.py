"""Pools: averages of the predictions of networks, over seeds, methods and imports."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

import tune_calib
from analysis.compare.decision import decide, decide_sums
from analysis.compare.pools import BEST, MEAN, measure_pools, pools_table
from analysis.load import load
from tests.imports.files import write
from tests.support import CPU, SETTINGS, here
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.classifier import ensure_classifier
from tune_calib.engine.pools import average, measure_diversity
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.library.export import export
from tune_calib.results.tables import read_slots, read_table
from tune_calib.spec.reproduction import Comparison
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
    tune_calib.compare(METHODS, **QUICK, seeds=2, bootstrap=100, out=out)
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


@pytest.mark.slow
def test_decisions_compare_a_pool_with_its_mean_member_and_the_best_one_on_select(tmp_path):
    settings = {**QUICK, "set": {**PLAIN, "pool.size": 2}, "bootstrap": 100}
    methods = ["ce", "temperature", "pool:ce", BOTH, "pool:ce:ls"]
    tune_calib.compare(methods, **settings, seeds=6, shift=["noise"], out=tmp_path)
    run, found = load(tmp_path), specs(tmp_path)
    for label, member in (("pool:ce", "ce"), ("pool:ce posthoc=temperature", "temperature")):
        pools = [found[label, seed][1]["test/nll"] for seed in (0, 2, 4)]
        members = [[found[member, seed + step][1] for step in range(2)] for seed in (0, 2, 4)]
        means = [np.mean([row["test/nll"] for row in pair]) for pair in members]
        best = [min(pair, key=lambda row: row["select/nll"])["test/nll"] for pair in members]
        for reference, others in ((MEAN, means), (BEST, best)):
            changes = measure_pools(run, label, "nll", reference)
            assert changes.values == pytest.approx(np.subtract(pools, others))
            assert changes.error > 0
        # As a decision between the two rungs, whose seeds are averaged.
        comparison = Comparison(label, (member,), "test/nll")
        (decision,) = decide_sums(run, [comparison])
        mean = measure_pools(run, label, "nll", MEAN)
        (of_table,) = decide([comparison], [mean])
        assert decision.pairs == 3
        for name in ("difference", "low", "high"):  # of which only decisions of rungs are rounded
            assert getattr(decision, name) == pytest.approx(getattr(of_table, name), abs=1e-9)
    why = measure_pools(run, "pool:ce:ls", "nll", MEAN).why
    assert why == "the run lacks trials of its members"
    hashes = {spec.hash for spec, _ in found.values()}
    assert set(read_table(tmp_path, "shifts")["spec_hash"].to_pylist()) == hashes


@pytest.mark.slow
def test_few_pools_are_decided_over_test_samples_only(run):
    table = pools_table(load(run))
    assert table.caption.startswith("Fewer than 3 pools of pool:ce:ls, pool:ce,")
    assert "What varies: the test samples of" in table.caption


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Imports of three models of one data set, and of one on other samples."""
    folder = tmp_path_factory.mktemp("imports")
    chance = np.random.default_rng(0)
    sizes = {"select": 60, "calib": 80, "test": 90}
    labels = {split: chance.integers(0, 4, size) for split, size in sizes.items()}
    for name in ("same/a", "same/b", "same/c", "other"):
        words = ["import", name, "--store", folder / "store"]
        for split, size in sizes.items():
            truth = labels[split] if name != "other" else chance.integers(0, 4, size)
            logits = (3 * np.eye(4)[truth] + 2 * chance.normal(size=(size, 4))).astype(np.float32)
            file = write(folder / f"{name[-1]}-{split}.npz", logits=logits, labels=truth)
            words += [f"--{split}", file]
        done = here(*words)
        assert done.returncode == 0, done.stderr
    return folder / "store"


@pytest.mark.slow
def test_imports_of_one_data_set_are_pooled(store, tmp_path):
    options = {"imported": "same/*", "store": store, "bootstrap": 100, "address": "none"}
    for _ in range(2):  # the second time, nothing is left to do
        tune_calib.compare(["vanilla", "pool:vanilla"], **options, out=tmp_path)
    run, found = load(tmp_path), read_table(tmp_path, "trials").to_pylist()
    (pool,) = [row for row in found if row["rung_label"] == "pool:vanilla"]
    members = [row["test/brier"] for row in found if row is not pool]
    ambiguity = float(run.recorded("test/ambiguity")["value"].iloc[0])
    assert np.mean(members) == pytest.approx(pool["test/brier"] + ambiguity, abs=1e-7)
    (difference,) = measure_pools(run, "pool:vanilla", "brier", MEAN).values
    assert difference == pytest.approx(-ambiguity, abs=1e-7)
    with pytest.raises(UserError, match="a pool of imported logits has no networks to export"):
        export(tmp_path, store, None, str(tmp_path / "pool"), pool["spec_hash"])


def test_imports_with_other_samples_are_refused_before_the_run(store, tmp_path):
    with pytest.raises(UserError, match="models of one data set"):
        tune_calib.compare(["pool:vanilla"], imported="*", store=store, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
