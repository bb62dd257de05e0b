"""What single ladders promise: their points, their pairs, and which trials they share."""

import json
from pathlib import Path

import pytest
import yaml

from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import LADDERS, expand
from tune_calib.spec.methods import METHODS
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.trial import content_hash

ROOT = Path(__file__).parents[2]
IMAGES = [name for name in DATASETS if DATASETS[name].quick]
FEDLAS = METHODS["fedlas_ls"]


def specs(ladder, **settings):
    return {
        trial.label: trial.spec
        for trial in expand(LADDERS[ladder], ResolvedRequest(settings).with_recipe())
    }


@pytest.mark.parametrize("dataset", sorted({*IMAGES, *FEDLAS.dataset_defaults} & set(DATASETS)))
@pytest.mark.parametrize("ladder", ["fedlas_sensitivity", "fedlas_plane"])
def test_the_published_point_is_the_base_on_every_data_set(ladder, dataset):
    settings = {"data": {"dataset": dataset}, "network": {"backbone": "resnet18", "epochs": 2}}
    planned = expand(LADDERS[ladder], ResolvedRequest(settings))
    base = planned[0].spec.network.params
    assert base == FEDLAS.params(**FEDLAS.dataset_defaults.get(dataset, {}))
    moved = [
        {k for k, v in trial.spec.network.params if v != getattr(base, k)} for trial in planned[1:]
    ]
    if ladder == "fedlas_plane":
        assert [len(names) for names in moved].count(2) == 16
        assert all(names <= {"alpha", "beta"} for names in moved)
    else:
        assert all(len(names) == 1 for names in moved)


@pytest.mark.parametrize("loss", ["ce", "ls", "mit_a", "mmce"])
def test_combined_methods_use_the_network_of_their_loss(loss):
    trial_specs = specs("combinations")
    alone, masked, scaled = (trial_specs[loss + more] for more in ("", "+mac_cal", "+temperature"))
    assert alone.network_id == masked.network_id == scaled.network_id
    assert (alone.head, masked.head.method) == (None, "mac_cal")
    assert (scaled.head, scaled.posthoc.method) == (None, "temperature")


def test_all_heads_of_a_ladder_of_heads_share_a_network():
    ladders = [name for name in LADDERS if name.startswith("mac_cal")]
    for name in (*ladders, "tst_samples"):
        assert len({spec.network_id for spec in specs(name).values()}) == 1


def test_single_settings_of_mac_cal_start_from_those_of_the_shipped_search():
    shipped = json.loads((ROOT / "docs/claims/resnet50/tuned/tuned.json").read_text())
    [chosen] = [method["tuned"] for method in shipped["methods"] if method["label"] == "mac_cal"]
    head = LADDERS["mac_cal_settings"].rungs[1].slots["head"]
    assert {name: head[name.removeprefix("head.")] for name in chosen} == chosen


def test_heads_without_training_ignore_the_requested_epochs():
    trial_specs = specs("mac_cal_readings", head={"epochs": 7})
    epochs = {label: spec.head.epochs for label, spec in trial_specs.items() if spec.head}
    assert all((count == 1) == label.startswith("at inference") for label, count in epochs.items())
    assert {count for count in epochs.values() if count > 1} == {7}


def test_the_example_of_imbalance_runs_each_factor_on_a_training_set_of_its_own():
    file = yaml.safe_load((ROOT / "docs/examples/imbalance.yaml").read_text())
    settings = [entry.get("set", {}) for entry in file["entries"].values()]
    planned = [expand(LADDERS["imbalance"], ResolvedRequest(slots)) for slots in settings]
    assert [trials[0].spec.data.imbalance for trials in planned] == [1, 10, 50, 100]
    assert all(len({content_hash(t.spec.data) for t in trials}) == 1 for trials in planned)
    hashes = [trial.spec.hash for trials in planned for trial in trials]
    assert len(set(hashes)) == len(hashes) == 20
