"""Methods that change the training procedure, run by the trainers of the engine."""

import math

import pytest
import torch

from tests.support import CPU, sample
from tune_calib.data.splits import load_development
from tune_calib.engine.network import NetworkTrainer
from tune_calib.errors import UserError
from tune_calib.methods._base import NetworkContext
from tune_calib.methods.balcal import Adaptor, column_scale, draw_etf, find_share
from tune_calib.methods.mit import draw_shares, unmix
from tune_calib.methods.mixup import draw_beta, mix
from tune_calib.methods.plp import GROUPS, PUBLISHED, block_ends, derive_boundaries, schedule
from tune_calib.models.network import Network
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

DEVELOPMENT = {}


def trainer(method, **network) -> NetworkTrainer:
    slot = {"epochs": 3, "batch_size": 64, "augment": "none", "method": method, **network}
    spec = TrialSpec.build(data={"train_fraction": 0.2}, network=slot)
    splits = DEVELOPMENT.setdefault(0, load_development(spec.data, None))
    return NetworkTrainer(spec, splits, CPU)


def copied(state):
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def meta_network(name: str) -> Network:
    with torch.device("meta"):
        backbone, width = BACKBONES[name].build(3, 32, "reference")
        return Network(backbone, width, 10)


# --- mixing


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_beta_has_its_moments(alpha):
    chance = torch.Generator().manual_seed(0)
    drawn = torch.tensor([draw_beta(alpha, chance) for _ in range(4000)])
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.03)
    assert float(drawn.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.015)


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_shares_differ_by_the_margin_and_unmix_inverts_mix(margin):
    chance = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 6, 3, generator=chance, dtype=torch.float64)
    for _ in range(50):
        shares = draw_shares(lambda: draw_beta(1.0, chance), margin)
        assert shares[0] - shares[1] >= max(margin, 1e-4)
        back = unmix(mix(first, second, shares[0]), mix(first, second, shares[1]), *shares)
        assert torch.allclose(back[0], first, atol=1e-9)
        assert torch.allclose(back[1], second, atol=1e-9)


def test_mixup_without_mixing_is_cross_entropy():
    common = {"lr": 0.01, "epochs": 1, "clip_grad_norm": None, "weight_decay": 1e-4}
    mixed, plain = trainer("mixup", params={"alpha": 0.0}, **common), trainer("ce", **common)
    list(mixed), list(plain)
    for name, value in plain.selected().items():
        assert torch.allclose(value, mixed.selected()[name], atol=1e-5), name


# --- stages


@pytest.mark.parametrize(
    ("name", "sections"),
    sample([("small_cnn", 5), ("resnet8", 6), ("resnet18", 6), ("densenet121", 6)], 1),
)
def test_stages_one_after_the_other_are_the_backbone(name, sections):
    backbone, width = BACKBONES[name].build(3, 16, "reference")
    network = Network(backbone, width, 10).eval()
    images = torch.randn(2, 3, 16, 16)
    features = images
    maps = []
    for stage in network.stages():
        maps.append(features)
        features = stage(features)
    assert len(maps) == sections
    assert maps[-1].shape[:2] == (2, width)
    assert torch.equal(features, network(images).features)
    assert not any("cut_into" in name for name in network.state_dict())


@pytest.mark.parametrize("method", ["mit_a", "balcal"])
def test_a_backbone_without_stages_is_one_line(method):
    network = meta_network("vit_tiny_patch16_224")
    info = METHODS[method]
    context = NetworkContext(classes=10, width=network.width, samples=1, epochs=1, seed=0)
    with pytest.raises(UserError, match="stage by stage") as error:
        info.implementation(info.params(), context).adapt(network)
    assert "\n" not in str(error.value)


# --- PLP


@pytest.mark.slow
def test_plp_trains_exactly_the_tensors_of_its_schedule():
    run = trainer("plp", lr=0.05, epochs=20)
    names = [name for name, _ in run.network.named_parameters()]
    counts = []
    for _ in range(20):
        before = copied(run.network.state_dict())
        count = next(run)["plp/trained_tensors"]
        counts.append(int(count))
        after = run.network.state_dict()
        moved = [name for name in names if not torch.equal(before[name], after[name])]
        assert moved == names[: counts[-1]]
        statistics = [name for name in after if name.endswith("running_mean")]
        assert not any(torch.equal(before[name], after[name]) for name in statistics)
    assert counts[0] == len(names)
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 3


@pytest.mark.parametrize(
    ("gamma", "counts"), [(1.0, [9, 6, 6, 3, 3]), (2.0, [6, 6, 3, 3, 3]), (0.5, [9, 9, 6, 6, 3])]
)
def test_plp_starts_a_boundary_at_the_epoch_that_its_formula_rounds_down_to(gamma, counts):
    assert schedule((9, 6, 3), gamma, 5) == counts


def test_derived_boundaries_are_blocks_and_as_many_as_published_ones():
    network = meta_network("resnet50")
    ends, derived = block_ends(network), derive_boundaries(network)
    assert set(PUBLISHED[161]) <= set(ends)  # the published groups end with blocks as well
    assert ends[0] == 3
    assert len(derived) == GROUPS
    assert list(derived) == sorted(set(derived), reverse=True)
    assert set(derived) <= set(ends)
    assert derived[0] == 161


# --- BalCAL


def test_the_adaptor_of_balcal_is_that_of_the_authors_network():
    torch.manual_seed(0)
    adaptor = Adaptor(640)
    # 40,168,795 parameters of their WRN-28-10 less 36,479,194 of its trunk and one for the share.
    assert sum(p.numel() for p in adaptor.parameters()) == 40_168_795 - 36_479_194 - 1
    parts = list(adaptor.modules())
    assert {m.momentum for m in parts if isinstance(m, torch.nn.BatchNorm2d)} == {0.01}
    drawn = {m.out_channels: float(m.weight.detach().std())
             for m in parts if isinstance(m, torch.nn.Conv2d)}  # fmt: skip
    assert drawn == pytest.approx({c: (2 / (9 * c)) ** 0.5 for c in (320, 640)}, rel=0.01)


def test_balcal_mixes_both_heads_at_evaluation():
    run = trainer("balcal", lr=1e-3)
    next(run)
    run.network.eval()
    run.method.eval()
    images = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        output, unit = run.method.heads(run.network, images)
        for share, expected in ((1.0, output.logits), (0.0, unit @ run.method.etf)):
            run.method.share.fill_(share)
            assert torch.allclose(run.method(run.network, images).logits, expected, atol=1e-6)
        assert torch.allclose(unit.norm(dim=1), torch.ones(4))
        assert torch.equal(output.features, run.network(images).features)


def test_the_etf_is_equiangular():
    etf = draw_etf(32, 5, seed=3).double()
    cosines = etf.T @ etf
    expected = torch.full((5, 5), -1 / 4, dtype=torch.float64).fill_diagonal_(1)
    assert torch.allclose(cosines, expected, atol=1e-6)


def test_column_scales_balance_the_classes_that_are_there():
    scale = column_scale(torch.tensor([0, 0, 0, 2]), 4, torch.float64)
    assert scale.tolist() == pytest.approx([math.sqrt(2 / 3), 1.0, math.sqrt(2), 1.0])


def test_logits_in_the_unit_interval_are_still_logits():
    chance = torch.Generator().manual_seed(0)
    linear, etf = torch.rand(2, 50, 3, generator=chance, dtype=torch.float64)
    labels = linear.argmax(1)
    assert find_share(linear, etf, labels, 0.95) == 1.0  # accurate and not confident
