"""Methods that change the training procedure, run by the trainers of the engine."""

import itertools
import math

import pytest
import torch

from tests.support import CPU, sample, small_spec
from tune_calib.data.splits import load_development
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.predict import predict
from tune_calib.errors import UserError
from tune_calib.methods._base import NetworkContext
from tune_calib.methods.balcal import (
    Adaptor,
    BalCal,
    BalCalParams,
    column_scale,
    draw_etf,
    find_share,
)
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


def test_beta_draws_at_the_edges_are_zero_or_one():
    chance = torch.Generator().manual_seed(0)
    assert draw_beta(0.0, chance) == 1.0
    assert {draw_beta(1e-12, chance) for _ in range(50)} == {0.0, 1.0}


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


def test_equal_draws_are_drawn_again_without_a_margin():
    draws = iter([0.5, 0.5, 0.7, 0.6])
    assert draw_shares(lambda: next(draws), 0.0) == pytest.approx((0.7, 0.4))


def test_an_impossible_margin_of_shares_is_one_line():
    with pytest.raises(UserError, match="smaller margin"):
        draw_shares(lambda: 0.5, 0.5)


@pytest.mark.parametrize("method", sample(["mixup", "mit_l", "mit_a"], 1))
def test_a_killed_run_of_a_mixing_method_equals_an_uninterrupted_one(method):
    whole = trainer(method, lr=0.01)
    list(whole)
    killed = trainer(method, lr=0.01)
    next(killed)
    tensors, about = killed.state()
    torch.manual_seed(123)
    resumed = trainer(method, lr=0.01)
    resumed.load_state(copied(tensors), about)
    list(resumed)
    weights = whole.selected()
    assert all(torch.equal(weights[name], value) for name, value in resumed.selected().items())


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


@pytest.mark.parametrize(("name", "sections"), [("wrn26_10", 5), ("resnet110", 6)])
def test_the_large_networks_have_stages_too(name, sections):
    network = meta_network(name)
    stages = network.stages()
    assert len(stages) == sections
    owned = {id(p) for stage in stages for p in stage.parameters()}
    assert owned == {id(p) for p in network.backbone.parameters()}
    features = torch.zeros(2, 3, 32, 32, device="meta")
    for stage in stages:
        features = stage(features)
    assert features.shape == (2, network.width)


@pytest.mark.parametrize("method", ["mit_a", "balcal"])
def test_a_backbone_without_stages_is_one_line(method):
    network = meta_network("vit_tiny_patch16_224")
    info = METHODS[method]
    context = NetworkContext(classes=10, width=network.width, samples=1, epochs=1, seed=0)
    with pytest.raises(UserError, match="stage by stage") as error:
        info.implementation(info.params(), context).adapt(network)
    assert "\n" not in str(error.value)


def test_a_timm_model_with_an_attribute_of_that_name_has_none():
    network = meta_network("convnext_atto")
    assert hasattr(network.backbone, "stages")
    with pytest.raises(UserError, match="ConvNeXt"):
        network.stages()


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
    ("gamma", "counts"),
    [(1.0, [9, 6, 6, 3, 3]), (2.0, [6, 6, 3, 3, 3]), (0.5, [9, 9, 6, 6, 3])],
)
def test_plp_starts_a_boundary_at_the_epoch_that_its_formula_rounds_down_to(gamma, counts):
    assert schedule((9, 6, 3), gamma, 5) == counts


def test_plp_goes_on_where_the_published_loop_stalls():
    counts = schedule(PUBLISHED[161], 3.0, 40)
    assert counts[-1] == 33
    assert len(set(counts)) > 3


def test_derived_boundaries_are_blocks_and_as_many_as_published_ones():
    network = meta_network("resnet50")
    ends, derived = block_ends(network), derive_boundaries(network)
    assert set(PUBLISHED[161]) <= set(ends)  # the published groups end with blocks as well
    assert ends[0] == 3
    assert len(derived) == GROUPS
    assert list(derived) == sorted(set(derived), reverse=True)
    assert set(derived) <= set(ends)
    assert derived[0] == 161


@pytest.mark.parametrize(
    ("name", "groups"),
    [("small_cnn", 5), ("resnet8", 6), ("wrn26_10", 11), ("densenet121", 11), ("resnet110", 11)],
)
def test_other_networks_get_up_to_eleven_groups(name, groups):
    network = meta_network(name)
    boundaries = derive_boundaries(network)
    assert len(boundaries) == groups
    assert boundaries[0] == len(list(network.parameters()))
    assert boundaries[-1] >= 3


def test_a_transformer_can_be_peeled_too():
    network = meta_network("vit_tiny_patch16_224")
    assert len(derive_boundaries(network)) == GROUPS
    assert block_ends(network)[-1] == len(list(network.parameters()))


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


def test_balcal_adapts_the_maps_where_the_pool_keeps_several_cells_of_each():
    method = BalCal(BalCalParams(), NetworkContext(200, 8192, 10, 1, 0))
    with torch.device("meta"):
        backbone, width = BACKBONES["resnet50"].build(3, 64, "reference")
        network = Network(backbone, width, 200)
        method.adapt(network)
        output, unit = method.heads(network, torch.zeros(2, 3, 64, 64))
    assert output.logits.shape == (2, 200)
    assert unit.shape == (2, 8192)


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


@pytest.mark.slow
def test_the_etf_and_the_share_survive_a_load():
    run = trainer("balcal", lr=1e-3)
    reports = list(run)
    weights = copied(run.selected())
    other = trainer("balcal", seed=1)
    assert not torch.equal(other.method.etf, run.method.etf)
    other.network.load_state_dict(run.network.state_dict())
    other.method.load_state_dict(run.method.state_dict())
    assert torch.equal(other.method.etf, run.method.etf)
    first, second = (predict(r.method, r.network, r.select.images, r.info)[1] for r in (run, other))
    assert torch.equal(first, second)
    assert weights["method.share"].dtype == torch.float64
    assert reports[0]["balcal/share"] == 0.8


def test_the_etf_is_equiangular():
    etf = draw_etf(32, 5, seed=3).double()
    cosines = etf.T @ etf
    expected = torch.full((5, 5), -1 / 4, dtype=torch.float64).fill_diagonal_(1)
    assert torch.allclose(cosines, expected, atol=1e-6)


def test_more_classes_than_features_are_one_line():
    with pytest.raises(UserError, match="wider backbone"):
        BalCal(BalCalParams(), NetworkContext(classes=10, width=9, samples=1, epochs=1, seed=0))


def test_column_scales_balance_the_classes_that_are_there():
    scale = column_scale(torch.tensor([0, 0, 0, 2]), 4, torch.float64)
    assert scale.tolist() == pytest.approx([math.sqrt(2 / 3), 1.0, math.sqrt(2), 1.0])


def test_logits_in_the_unit_interval_are_still_logits():
    chance = torch.Generator().manual_seed(0)
    linear, etf = torch.rand(2, 50, 3, generator=chance, dtype=torch.float64)
    labels = linear.argmax(1)
    assert find_share(linear, etf, labels, 0.95) == 1.0  # accurate and not confident


# --- V-TST


def heads(seeds, **params):
    return [
        small_spec(method="vtst", seed=s, lr=1e-3 * (s + 1), params={"latent": 8, **params}).head
        for s in seeds
    ]


def test_a_variational_head_keeps_no_graph_of_a_step(bank):
    trainer = HeadBatchTrainer(heads((0,)), bank, 0, CPU)
    next(trainer)
    assert trainer.method.kl > 0
    assert not trainer.method.kl.requires_grad


@pytest.mark.parametrize("evaluation", ["mc", "mean"])
def test_a_variational_head_does_not_depend_on_its_head_batch(evaluation, bank):
    runs = []
    for seeds in ((0, 1, 2), (2,)):
        run = HeadBatchTrainer(heads(seeds, evaluation=evaluation), bank, 0, CPU)
        runs.append((run, list(itertools.islice(run, 2))))
    (together, reports), (alone, own) = runs
    select = bank.select()
    assert torch.equal(together.predict(select)[2], alone.predict(select)[0])
    for report, single in zip(reports, own, strict=True):
        assert {k: v[2].item() for k, v in report.items()} == {
            k: v.item() for k, v in single.items()
        }


def test_a_variational_head_gives_probabilities_and_has_a_kl(bank):
    run = HeadBatchTrainer(heads((0, 1)), bank, 0, CPU)
    next(run)
    probs = run.predict(bank.select()).exp()
    assert torch.allclose(probs.sum(-1), torch.ones(probs.shape[:2]), atol=1e-5)
    assert (run.method.kl > 0).all()
    _, log_variance = run.method.moments(bank.select().features)
    assert bool((log_variance < 0).all())


def test_a_heavier_kl_pulls_the_latent_to_the_prior(bank):
    slots = [heads((0,), kl_weight=weight)[0] for weight in (0.0, 100.0)]
    run = HeadBatchTrainer(slots, bank, 0, CPU)
    list(run)
    assert run.method.kl[1] < run.method.kl[0]


def test_every_step_of_a_variational_head_has_noise_of_its_own(bank):
    method = HeadBatchTrainer(heads((0,)), bank, 0, CPU).method
    drawn = []
    for step in (0, 1, 0):
        method.drawn = method.draw(step, len(bank.select().labels))
        drawn.append(method.training_logits(bank.select().features).detach())
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.allclose(drawn[0], drawn[1], atol=1e-3)


def test_the_body_of_a_variational_head_starts_as_that_of_a_plain_one(bank):
    plain = small_spec(method="tst", seed=4, params={"latent": 8}).head
    first = HeadBatchTrainer([plain], bank, 0, CPU).method.parameters
    second = HeadBatchTrainer(heads((4,)), bank, 0, CPU).method.parameters
    assert torch.equal(first["0.weight"], second["mean.0.weight"])
    assert torch.equal(first["2.weight"], second["output.0.weight"])
    assert not torch.equal(second["mean.0.weight"], second["variance.0.weight"])
