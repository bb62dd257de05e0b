"""Networks that start from a file of weights."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support import CPU
from tune_calib.data.splits import load_development
from tune_calib.engine.artifacts import NetworkTraining
from tune_calib.engine.network import build
from tune_calib.engine.weights import FILE, KIND, store_weights
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.models.network import build_network
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.resolve import resolve_files


def network_of(backbone: str = "small_cnn", classes: int = 10, size: int = 8, seed: int = 7):
    return build_network(backbone, "reference", 1, size, classes, seed)


def saved(path: Path, network, rename=lambda name: name, how=lambda tensor: tensor) -> Path:
    tensors = {rename(name): how(t.contiguous()) for name, t in network.state_dict().items()}
    save_file(tensors, path)
    return path


def spec_from(file: Path, store: Path, **network) -> TrialSpec:
    settings = {"data": {"dataset": "digits"}, "network": {"weights": str(file), **network}}
    return resolve_files(ResolvedRequest(settings), None, store).spec()


STYLES = {
    "ours": lambda name: name,
    "an artifact": lambda name: f"network.{name}",
    "timm": lambda name: name.removeprefix("backbone.").replace("head.", "fc."),
    "parallel": lambda name: f"module.{name.removeprefix('backbone.').replace('head.', 'linear.')}",
}


@pytest.mark.parametrize("style", STYLES)
def test_a_training_starts_from_the_weights_under_any_names(style, tmp_path):
    source = network_of()
    file = saved(tmp_path / "w.safetensors", source, STYLES[style])
    spec = spec_from(file, tmp_path / "store", epochs=1)
    file.unlink()  # the store has a copy
    store = Store(tmp_path / "store")
    run = NetworkTraining(spec, store, load_development(spec.data, None), CPU)
    assert run.trainer is not None
    for name, tensor in run.trainer.network.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name]), name
    run.close()


def test_the_content_and_not_the_path_is_the_identity(tmp_path):
    files = [saved(tmp_path / f"{n}.safetensors", network_of(seed=s)) for n, s in
             (("a", 1), ("b", 1), ("c", 2))]  # fmt: skip
    ids = [spec_from(file, tmp_path / "store").network_id for file in files]
    assert ids[0] == ids[1] != ids[2]
    assert TrialSpec.build(network={}).network_id not in ids


def test_a_last_layer_of_other_classes_is_initialised_with_a_warning(tmp_path, capsys):
    source = network_of(classes=1000)
    file = saved(tmp_path / "w.safetensors", source)
    spec = spec_from(file, tmp_path / "store")
    assert "its last layer has other classes" in capsys.readouterr().err
    store = Store(tmp_path / "store")
    run = NetworkTraining(spec, store, load_development(spec.data, None), CPU)
    assert run.trainer is not None
    fresh, found = build(spec, 500)[0].state_dict(), run.trainer.network.state_dict()
    assert torch.equal(found["head.weight"], fresh["head.weight"])
    assert torch.equal(found["backbone.0.weight"], source.state_dict()["backbone.0.weight"])
    run.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda at: saved(at, network_of("resnet8")), r"another network \(.*use the backbone"),
        (
            lambda at: saved(at, build_network("small_cnn", "reference", 3, 8, 10, 0)),
            "of another shape",
        ),
        (lambda at: at.write_bytes(b"PK\x03\x04"), "not a readable safetensors file.*torch.save"),
        (
            lambda at: saved(at, network_of(), how=lambda t: t * float("nan")),
            "contains NaN or infinity",
        ),
        (lambda at: saved(at, network_of(), how=lambda t: (9 * t).char()), "quantised network"),
    ],
)
def test_weights_that_do_not_fit_are_one_line(content, message, tmp_path):
    file = tmp_path / "w.safetensors"
    content(file)
    with pytest.raises(UserError, match=message) as error:
        spec_from(file, tmp_path / "store")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "store" / "weights").exists()


def test_damaged_weights_of_a_store_are_copied_from_the_file_again(tmp_path):
    file, store = saved(tmp_path / "w.safetensors", network_of()), Store(tmp_path / "store")
    kept = store.folder(KIND, store_weights(file, store)) / FILE
    kept.write_bytes(b"half")
    store_weights(file, store)
    assert kept.read_bytes() == file.read_bytes()
