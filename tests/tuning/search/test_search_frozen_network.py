"""A search on a network that others trained, and its look at test."""

import pytest

from tests.engine.test_weights import saved
from tests.support import CPU, here, rows
from tests.tuning.ray.test_frozen_networks import saw_what_is_held_out
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, load_network
from tune_calib.engine.evaluate import network_logits
from tune_calib.files.store import Store
from tune_calib.metrics.samples import Samples
from tune_calib.metrics.scoring import accuracy
from tune_calib.spec.trial import TrialSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRIALS, SEEDS = 3, 2
NETWORK = ["--backbone", "small_cnn", "--norm", "dataset"]
HEADS = ["--trials", TRIALS, "--population", 2, "--at-once", 1, "--head-epochs", 3]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Weights of a network that this program trained, and its accuracy by split."""
    folder = tmp_path_factory.mktemp("exported")
    spec = TrialSpec.build(network={"epochs": 8, "augment": "none"})
    store, development = Store(folder / "store"), load_development(spec.data, None)
    run = NetworkTraining(spec, store, development, CPU)
    while run.step() is not None:
        pass
    run.close()
    trained = load_network(spec, store, CPU)
    logits = network_logits(trained, spec.data.info, development, load_test(spec.data, None))
    right = {
        name: float(accuracy(Samples(split.logits[0].double().softmax(-1), split.labels)))
        for name, split in logits.items()
    }
    return saved(folder / "w.safetensors", trained.network), right


@pytest.fixture(scope="module")
def searched(exported, tmp_path_factory):
    """A folder with a search of heads, and its choice evaluated."""
    out = tmp_path_factory.mktemp("searches") / "given"
    for command in (
        ["search", "mac_cal", *NETWORK, "--weights", exported[0], *HEADS, "--out", out],
        ["evaluate", out, "--seeds", SEEDS],
    ):
        done = here(*command)
        assert done.returncode == 0, done.stderr
    return out


def test_all_trials_of_a_search_use_the_frozen_network(searched, exported):
    tried, evaluated = rows(searched), rows(searched / "evaluation")
    assert len({row["network_id"] for row in [*tried, *evaluated]}) == 1
    assert {row["network_seed"] for row in [*tried, *evaluated]} == {0}
    (folder,) = (searched / "store" / "networks").iterdir()
    assert folder.name == tried[0]["network_id"]
    assert not list((searched / "store" / "checkpoints").glob("*/*"))
    artifact = exported[1]
    assert artifact["test"] > 0.8  # trained
    for row in [*tried, *evaluated]:
        base = "" if row["head_seed"] is None else "base/"
        assert row[f"{base}select/accuracy"] == artifact["select"]


def test_a_search_sees_no_test_and_evaluates_under_fresh_seeds_of_heads(searched, exported):
    tried, evaluated = rows(searched), rows(searched / "evaluation")
    assert len(tried) == TRIALS + 1
    assert not any(name.startswith("test/") for name in tried[0])
    labels = [row["rung_label"] for row in evaluated]
    # The network is one; the choice may be the defaults.
    assert labels.count("baseline") == 1
    assert {labels.count(name) for name in {*labels} - {"baseline"}} == {SEEDS}
    fresh = {row["head_seed"] for row in evaluated if row["head_seed"] is not None}
    assert len(fresh) == SEEDS
    assert not fresh & {row["head_seed"] for row in tried}
    (baseline,) = (row for row in evaluated if row["rung_label"] == "baseline")
    assert baseline["test/accuracy"] == exported[1]["test"]


def test_a_network_that_saw_the_hold_out_ends_a_comparison_in_one_line(tmp_path):
    file, out = saw_what_is_held_out(tmp_path / "w.safetensors"), tmp_path / "out"
    done = here("compare", "ce", "retrain", *NETWORK, "--weights", file, "--out", out)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: the frozen network is correct on ")
    assert last.endswith("trained on the held-out images; set --holdout to test")
    assert "crashed; first" not in done.stderr
    assert not (out / "crashes.txt").exists()
