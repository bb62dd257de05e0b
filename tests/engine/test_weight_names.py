"""Weights under the names of a network, and hold-outs that it may not have seen."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.engine.test_weights import network_of
from tests.support import CPU
from tune_calib.data.splits import load_development
from tune_calib.engine.artifacts import NetworkTraining
from tune_calib.engine.evaluate import SplitLogits, refuse_better, refuse_seen
from tune_calib.engine.tensors import TENSORS
from tune_calib.engine.weights import match_weights, store_weights, trained_by, trained_spec
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.models.network import Network
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.resolve import resolve_files

HASH = "0123456789abcdef"


def renamed(network: nn.Module, rename) -> dict[str, torch.Tensor]:
    return {rename(name): tensor.clone() for name, tensor in network.state_dict().items()}


def assert_same(fitted, network, less=("num_batches_tracked",)):
    for name, tensor in network.state_dict().items():
        if not name.endswith(less):
            assert torch.equal(fitted[name], tensor), name


@pytest.mark.parametrize("backbone", ["small_cnn", "small_vgg", "resnet8", "resnet20_he"])
@pytest.mark.parametrize(
    "prefix", ["", "module.", "model.", "_orig_mod.", "module.model.", "backbone.", "net."]
)
def test_prefixed_weight_names_are_accepted(backbone, prefix):
    source, other = (network_of(backbone, seed=seed) for seed in (1, 2))
    weights = renamed(source, lambda name: prefix + name.removeprefix("backbone."))
    fitted, message = match_weights(other, weights, "w", is_frozen=True)
    assert message == ""
    assert_same(fitted, source)


class Attention(nn.Module):
    """Layers that letters alone tell apart, registered in another order than theirs."""

    def __init__(self, names):
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(4, 4))

    def forward(self, features):
        for layer in self.children():
            features = layer(features)
        return features


def numbers_from_behind(name: str) -> str:
    layer, dot, kind = name.removeprefix("backbone.").partition(".")
    return f"features.{20 - int(layer)}{dot}{kind}" if layer.isdigit() else name


@pytest.mark.parametrize(
    ("network", "weights", "message"),
    [
        (
            Network(Attention("qkv"), 4, 4),
            renamed(Network(Attention("abc"), 4, 4), str),
            r"6 tensors missing: q.weight, q.bias, k.weight, \.\.\.; 6 tensors unknown: ",
        ),
        (network_of(), renamed(network_of(), numbers_from_behind), "tensors missing"),
        (
            network_of("resnet20_he"),
            renamed(network_of("resnet20_he"), lambda name: name.replace("bn", "norm")),
            r"76 tensors missing: bn1.weight, bn1.bias, .*95 tensors unknown",
        ),
        (network_of(), renamed(network_of("small_vgg"), str), "FILE.py:FUNCTION"),
        (network_of(size=8), renamed(network_of("resnet32_he"), str), "unknown"),
    ],
)  # fmt: skip
def test_foreign_weight_names_are_one_line(network, weights, message):
    with pytest.raises(UserError, match=message) as refused:
        match_weights(network, weights, "w", is_frozen=True)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_last_layer_without_bias_has_one_of_zeros():
    weights = renamed(network_of(), str)
    del weights["head.bias"]
    fitted, message = match_weights(network_of(), weights, "w", is_frozen=True)
    assert message == ""
    assert not fitted["head.bias"].any()
    assert "other classes" in match_weights(network_of(), weights, "w")[1]  # of what is trained on


def test_half_precision_weights_become_single_precision():
    given = {name: t.half() if t.is_floating_point() else t
             for name, t in network_of(seed=3).state_dict().items()}  # fmt: skip
    network = network_of()
    network.load_state_dict(match_weights(network, given, "w", is_frozen=True)[0])
    assert torch.equal(network.head.weight, given["head.weight"].float())


def artifact(store: Store, method="ce", **network) -> tuple[TrialSpec, object]:
    spec = TrialSpec.build(network={"method": method, "epochs": 1, "augment": "none", **network})
    run = NetworkTraining(spec, store, load_development(spec.data, None), CPU)
    while run.step() is not None:
        pass
    run.close()
    return spec, store.folder("networks", spec.network_id) / TENSORS


def request_from(file, store, **data):
    network = {"backbone": "small_cnn", "weights": str(file), "epochs": 0}
    return resolve_files(
        ResolvedRequest({"data": data, "network": network}).with_recipe(), None, store
    )


def test_weights_of_this_program_record_their_training_data(tmp_path):
    spec, file = artifact(Store(tmp_path / "a"))
    assert trained_by(file) == spec
    again = request_from(file, tmp_path / "b").spec()  # needs no --norm
    assert again.data == spec.data
    assert trained_spec(again.network.weights, Store(tmp_path / "b")) == spec
    assert request_from(file, tmp_path / "b", holdout="test").spec().data.holdout == "test"
    told = tmp_path / "w.safetensors"
    save_file({"x": torch.zeros(1)}, told, {"spec": spec.canonical_json()})
    assert trained_by(told) == spec
    save_file({"x": torch.zeros(1)}, file)  # no more what the manifest beside it tells of
    assert trained_by(file) is None


TRAINED = {
    "default": {"data": {}},
    "whole": {"data": {"split": "whole"}},
    "whole, chosen": {"data": {"split": "whole"}, "network": {"select": "best_val_acc"}},
    "holdout": {"data": {"holdout": "test"}},
    "holdout, calib": {"data": {"holdout": "test"}, "network": {"method": "adafocal"}},
    "given": {"data": {"holdout": "test"}, "network": {"weights": HASH, "epochs": 0}},
    "published": {"data": {"split": "whole"}, "network": {"weights": "02926273efb1dead"}},
}
SEEN = [
    ("default", {}, None),
    ("default", {"split": "tst"}, "data.split=default"),
    ("default", {"split": "whole"}, None),
    ("default", {"holdout": "test"}, None),
    ("default", {"train_fraction": 0.5}, None),
    ("default", {"dataset": "cifar100", "split": "tst"}, None),
    ("whole", {}, "data.split=whole"),
    ("whole", {"split": "whole"}, None),
    ("whole", {"holdout": "test"}, None),
    ("whole, chosen", {"split": "whole"}, None),
    ("whole, chosen", {"holdout": "test"}, "selected on test images"),
    ("holdout", {}, "data.holdout=test"),
    ("holdout", {"holdout": "test", "holdout_shares": (0.1, 0.1, 0.8)}, None),
    (
        "holdout, calib",
        {"holdout": "test", "holdout_shares": (0.1, 0.1, 0.8)},
        "selected on test images",
    ),
    ("given", {}, None),
    ("published", {}, "`holdout` test"),
    ("published", {"holdout": "test"}, None),
]


@pytest.mark.parametrize(("made", "data", "message"), SEEN)
def test_a_hold_out_that_it_was_trained_on_is_refused(made, data, message):
    slots = {slot: dict(own) for slot, own in TRAINED[made].items()}
    slots["data"]["dataset"] = "cifar10"
    slots.setdefault("network", {})["backbone"] = "resnet20_he"
    spec, slot = TrialSpec.build(**slots), DataSlot(**{"dataset": "cifar10", **data})
    if message is None:
        refuse_seen(spec, slot)
        return
    with pytest.raises(UserError, match=message) as told:
        refuse_seen(spec, slot)
    assert "\n" not in str(told.value)


def outputs(right: float, count: int) -> SplitLogits:
    """Logits of which a share is right."""
    labels = torch.zeros(count, dtype=torch.long)
    logits = torch.zeros(1, count, 2)
    logits[0, : round(right * count), 0] = 1.0
    logits[0, round(right * count) :, 1] = 1.0
    return SplitLogits(logits, labels)


@pytest.mark.parametrize(
    ("held_out", "test", "is_refused"),
    [(0.99, 0.92, True), (0.94, 0.92, False), (0.92, 0.99, False), (1.0, 1.0, False),
     (0.0, 0.0, False), (1.0, 0.5, True)],
)  # fmt: skip
def test_a_network_that_is_better_on_the_hold_out_is_refused(held_out, test, is_refused, tmp_path):
    spec = TrialSpec.build(network={"weights": HASH, "epochs": 0})
    logits = {"select": outputs(held_out, 1000), "calib": outputs(held_out, 1000)}
    store = Store(tmp_path)
    refuse_better(spec, store, logits)  # as in a search, which has no test
    logits["test"] = outputs(test, 2000)
    if is_refused:
        with pytest.raises(UserError, match="set `holdout` to test"):
            refuse_better(spec, store, logits)
    else:
        refuse_better(spec, store, logits)
    for other in ({"data": {"holdout": "test"}}, {"data": {"split": "whole"}}):
        refuse_better(TrialSpec.build(**other, network=spec.network.model_dump()), store, logits)
    refuse_better(TrialSpec.build(network={"weights": HASH}), store, logits)  # it is trained here


def test_a_frozen_network_with_overflowing_logits_is_refused(tmp_path):
    spec = TrialSpec.build(network={"weights": HASH, "epochs": 0})
    logits = {name: outputs(0.5, 100) for name in ("select", "calib", "test")}
    logits["calib"].logits[0, 3, 1] = torch.nan
    with pytest.raises(UserError, match=rf"NaN or infinite logits on calib: its weights \({HASH}"):
        refuse_better(spec, Store(tmp_path), logits)


@pytest.mark.parametrize("beginning", [{}, {"weights": HASH}, {"weights": HASH, "epochs": 0}])
def test_weights_started_from_other_weights_have_unknown_training_data(beginning, tmp_path):
    made = TrialSpec.build(network=beginning)
    file = tmp_path / "w.safetensors"
    save_file({"x": torch.zeros(1)}, file, {"spec": made.canonical_json()})
    store = Store(tmp_path / "store")
    spec = TrialSpec.build(network={"weights": store_weights(file, store), "epochs": 0})
    logits = {"select": outputs(0.99, 1000), "calib": outputs(0.99, 1000)}
    logits["test"] = outputs(0.92, 2000)
    if not beginning:
        refuse_better(spec, store, logits)
        return
    with pytest.raises(UserError, match="set `holdout` to test"):
        refuse_better(spec, store, logits)


def test_an_export_gives_its_network_with_its_own_head(tmp_path, capsys):
    source = network_of()
    tensors = {f"network.{k}": v.contiguous() for k, v in source.state_dict().items()}
    file = tmp_path / "w.safetensors"
    save_file({**tensors, "classifier.head.weight": torch.zeros(3)}, file)
    request_from(file, tmp_path / "store", norm="dataset")
    assert "with its own head" in capsys.readouterr().err
    assert_same(match_weights(network_of(seed=1), tensors, "w", is_frozen=True)[0], source)
