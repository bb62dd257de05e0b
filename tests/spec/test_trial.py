import json
import os
import subprocess
import sys

import pytest

from tune_calib.errors import UserError
from tune_calib.spec.methods import METHODS
from tune_calib.spec.settings import own_recipe
from tune_calib.spec.trial import TrialSpec

GOLDEN = {
    "data": {"dataset": "cifar10", "train_fraction": 0.5},
    "network": {"method": "ls", "backbone": "resnet20", "seed": 3},
    "head": {"method": "mac_cal", "params": {"gamma": 0.9}},
    "posthoc": {"method": "temperature"},
}


def test_hash_is_the_same_in_another_process_and_hash_seed():
    program = (
        "import json,sys; from tune_calib.spec.trial import TrialSpec;"
        "print(TrialSpec.build(**json.loads(sys.argv[1])).hash)"
    )
    other = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(GOLDEN)],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == TrialSpec.build(**GOLDEN).hash


def test_defaults_written_out_or_left_out_are_the_same_trial():
    short = TrialSpec.build(network={"method": "ce"})
    long = TrialSpec.build(
        data={"dataset": "digits"}, network={"method": "ce", "lr": 0.1, "seed": 0}
    )
    assert short.hash == long.hash


def test_network_id_knows_data_and_network_alone():
    spec = TrialSpec.build(**GOLDEN)
    other_head = TrialSpec.build(**{**GOLDEN, "head": {"method": "tst"}})
    other_seed = TrialSpec.build(**{**GOLDEN, "network": {**GOLDEN["network"], "seed": 4}})
    assert other_head.network_id == spec.network_id
    assert other_head.hash != spec.hash
    assert other_seed.network_id != spec.network_id


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].classes is None])
def test_every_method_round_trips_in_its_slot(name):
    kind = METHODS[name].kind
    spec = TrialSpec.build(**{"network": {}, kind: {"method": name}})
    assert TrialSpec.build(**json.loads(spec.canonical_json())) == spec


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ({"network": {"method": "cee"}}, "did you mean 'ce'"),
        ({"network": {"method": "mac_cal"}}, "is a head method"),
        ({"network": {"backbone": "resnet_20"}}, "unknown backbone"),
        ({"network": {"epochs": 0}}, "network.epochs"),
        ({"network": {"lr": float("nan")}}, "network.lr"),
        ({"network": {"lr": "fast"}}, "network.lr"),
        ({"network": {"lrr": 1}}, "network.lrr: is not a setting, got 1"),
        # Of a setting that takes several kinds of values no kind is named as if it were a setting.
        (
            {"network": {}, "head": {"method": "mac_cal", "params": {"gamma": "nan"}}},
            "gamma: must be a finite number or 'val_ratio', got 'nan'",
        ),
        ({"network": {}, "data": {"norm": 5}}, "data.norm: must be a string or a list, got 5"),
        ({"network": {"milestones": [0.5, 0.2]}}, "milestones must rise"),
        ({"network": {"epoch": 3}}, "epoch"),
        ({"network": {}, "data": {"dataset": "digit"}}, "did you mean 'digits'"),
        ({"network": {}, "data": {"train_fraction": 0}}, "train_fraction"),
        ({"network": {}, "head": {"method": "mac_cal", "params": {"gama": 1}}}, "'gamma'"),
        ({"network": {}, "head": {"method": "mac_cal", "params": {"gamma": 2}}}, "(0, 1]"),
        ({"network": {}, "head": {"method": "mac_cal", "params": {"q0": float("inf")}}}, "q0"),
        (
            {"network": {}, "head": {"method": "mac_cal", "params": {"mask_scale": "inverted"}}},
            "would compound",
        ),
        (
            {
                "network": {},
                "head": {
                    "method": "mac_cal",
                    "params": {
                        "masking": "functional",
                        "mask_scale": "inverted",
                        "evaluation": "expected",
                    },
                },
            },
            "would scale by q twice",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_it(slots, message):
    with pytest.raises(UserError) as caught:
        TrialSpec.build(**slots)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("slots", "trial", "network"),
    [
        (GOLDEN, "44483fa5ce1ebac5", "87fcd35c76b80d17"),
        ({"network": {}}, "c6ea9fbf1476d74c", "c6ea9fbf1476d74c"),
        (
            {
                "network": {"method": "fl", "seed": 2},
                # The recipe that stood in the spec by itself then.
                "head": {"method": "tst", **own_recipe(METHODS["tst"], "")},
            },
            "14f5a9ec0b2e524f",
            "935356990123c709",
        ),
    ],
)
def test_settings_at_their_defaults_leave_hashes_unchanged(slots, trial, network):
    """The literals were computed before ``threads`` was a setting."""
    spec = TrialSpec.build(**slots)
    assert (spec.hash, spec.network_id) == (trial, network)
    written = {**slots, "network": {**slots["network"], "threads": 1}}
    assert TrialSpec.build(**written).hash == trial


@pytest.mark.parametrize("threads", [2, 64])
def test_another_number_of_threads_is_another_network(threads):
    plain = TrialSpec.build(**GOLDEN)
    spec = TrialSpec.build(**{**GOLDEN, "network": {**GOLDEN["network"], "threads": threads}})
    assert spec.network_id != plain.network_id
    assert TrialSpec.build(**json.loads(spec.canonical_json())) == spec
