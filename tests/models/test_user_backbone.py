"""Functions of a user's file as backbones."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support import CPU
from tune_calib.data.splits import load_development
from tune_calib.engine.artifacts import NetworkTraining, load_network
from tune_calib.engine.network import build
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.spec import plugins
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.resolve import resolve_files

FILE = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
        self.mix = nn.Linear(216, 16)
        self.out = nn.Linear(16, 10, bias=bias)
        self.shown = nn.Linear(10, 10)  # read by nobody

    def body(self, x):
        return torch.relu(self.mix(self.model(x)))

    def forward(self, x):
        return self.out(F.dropout(self.body(x), 0.5, self.training))


class ByName(Net):
    def forward(self, x):
        return self.out(input=self.body(x))


class Extractor(Net):
    def forward(self, x):
        return self.body(x)


class Softmax(Net):
    def forward(self, x):
        return super().forward(x).softmax(1)


class Skip(Net):
    def forward(self, x):
        self.kept = self.out(self.body(x))
        return self.out(self.body(x) + self.kept.sum() * 0.5)


class Pair(Net):
    def forward(self, x):
        return super().forward(x), 1


def net(): return Net()
def plain(): return Net(bias=False)
def by_name(): return ByName()
def nested(): return nn.Sequential(nn.Identity(), nn.Sequential(Net()))
def extractor(): return Extractor()
def softmax(): return Softmax()
def skip(): return Skip()
def pair(): return Pair()


def fails():
    raise ValueError("no such\\nfile")


def ends():
    raise SystemExit(3)


def colours():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(10))
"""


@pytest.fixture(autouse=True)
def restored_plugins():
    """Unload the plug-ins of a test: they are registered for the whole process."""
    before = plugins.in_use()
    yield
    plugins.use(before)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "lab.py"
    path.write_text(FILE)
    return path


def request_with(backbone: str, weights: Path) -> ResolvedRequest:
    network = {"backbone": backbone, "weights": str(weights), "epochs": 0}
    return ResolvedRequest({"data": {"norm": "dataset"}, "network": network}).with_recipe()


def weights_of(function: str, at: Path) -> tuple[Path, torch.nn.Module]:
    names: dict = {"__name__": "lab"}
    exec(compile(FILE, "lab", "exec"), names)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        module = names[function]()
        layer = torch.nn.Linear(16, 10)
    tensors = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    if function == "extractor":  # its file holds the last layer beside it
        tensors |= {f"fc.{name}": tensor for name, tensor in layer.state_dict().items()}
        module = torch.nn.Sequential(module, layer)
    save_file(tensors, at)
    return at, module.eval()


@pytest.mark.parametrize("function", ["net", "plain", "by_name", "nested", "extractor"])
def test_a_backbone_file_gives_the_outputs_of_its_module(function, file, tmp_path):
    weights, module = weights_of(function, tmp_path / "w.safetensors")
    backbone = plugins.backbone(f"{file}:{function}")
    assert backbone == f"lab.{function}"
    store = Store(tmp_path / "s")
    spec = resolve_files(request_with(backbone, weights), None, store.root).spec()
    assert spec.network.plugin == plugins.read(str(file)).content
    assert str(tmp_path) not in spec.canonical_json()
    run = NetworkTraining(spec, store, load_development(spec.data, None), CPU)
    assert run.step() is None
    run.close()
    network = load_network(spec, store, CPU).network.eval()
    images = torch.randn(5, 1, 8, 8)
    features, logits = network(images)
    assert features.shape == (5, 16)
    assert torch.allclose(logits, module(images), atol=1e-5)


@pytest.mark.parametrize("function", ["net", "extractor"])
def test_a_backbone_file_is_trained_like_any_other(function, file):
    backbone = plugins.backbone(f"{file}:{function}")
    spec = TrialSpec.build(network={"backbone": backbone, "epochs": 1, "augment": "none"})
    one, two = (build(spec, 2)[0].state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("softmax", "the last layer of .* has shape none, .*output of a linear layer"),
        ("skip", "last linear layer, out; return"),
        ("pair", "it returns tuple, but it must return logits or features"),
        ("fails", r"lab.py line \d+: ValueError: no such file"),
        ("ends", r"lab.py line \d+: SystemExit: 3"),
        ("colours", "RuntimeError"),
        ("nett", "defines no function 'nett'"),
    ],
)
def test_an_unusable_backbone_file_is_one_line(function, message, file, tmp_path):
    is_alike = function in ("softmax", "skip", "pair")
    weights, _ = weights_of(function if is_alike else "nested", tmp_path / "w.safetensors")

    def take() -> None:
        backbone = plugins.backbone(f"{file}:{function}")
        resolve_files(request_with(backbone, weights), None, tmp_path / "s")

    with pytest.raises(UserError, match=message) as told:
        take()
    assert "\n" not in str(told.value)
    assert not (tmp_path / "s" / "weights").exists()


def test_a_changed_file_is_another_network(file, tmp_path):
    ids = []
    for text in (FILE, FILE, FILE + "# changed\n"):
        file.write_text(text)
        plugins.use([])
        backbone = plugins.backbone(f"{file}:net")
        ids.append(TrialSpec.build(network={"backbone": backbone}).network_id)
    assert ids[0] == ids[1] != ids[2]
    plugins.use([])
    with pytest.raises(UserError, match=r"unknown backbone 'lab\.net'"):
        _ = BACKBONES["lab.net"]
