"""The trainer of head batches: the numbers of a head are its own."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from tests.support import CPU, sample, small_spec
from tune_calib.engine.head_batch import HeadBatchTrainer, head_context
from tune_calib.engine.head_steps import StackedOptimizer

MAC_CAL_OPTIONS = [
    {},
    {"shape": "linear", "gradient": "dense", "tau0": 0.0},
    {"masking": "functional"},
    {"masking": "functional", "mask_scale": "inverted", "evaluation": "mc", "mc_samples": 3},
    {"masking": "functional", "gradient": "dense", "evaluation": "expected"},
    {"masked_update": "freeze", "refresh": "batch"},
    {"masked_layers": "last", "mask_bias": True, "statistics": "masked_pass"},
    {"masked_layers": "first", "statistics": "dense_pass", "evaluation": "last_mask"},
    {"gamma": "val_ratio", "statistics": "eval_head_pass", "activation": "gelu"},
]


def slot(method="mac_cal", **given):
    fields = {k: given.pop(k) for k in list(given) if k in ("seed", "lr", "weight_decay")}
    other = given.pop("slot", {})
    return small_spec(method=method, params=given, **fields, **other).head


def train(slots, bank, epochs=None):
    trainer = HeadBatchTrainer(slots, bank, 0, CPU)
    reports = list(itertools.islice(trainer, epochs))
    return trainer, reports


@pytest.mark.parametrize("options", sample(MAC_CAL_OPTIONS, 3))
def test_every_option_of_mac_cal_trains_and_resumes(options, bank):
    slots = [slot(seed=s, **options) for s in range(2)]
    whole, _ = train(slots, bank)
    half, _ = train(slots, bank, epochs=1)
    resumed = HeadBatchTrainer(slots, bank, 0, CPU)
    resumed.load_state({k: v.detach().clone() for k, v in half.state().items()})
    list(resumed)
    assert torch.equal(whole.predict(bank.select()), resumed.predict(bank.select()))
    assert whole.predict(bank.select()).isfinite().all()


@pytest.mark.parametrize("options", [{}, {"masking": "functional", "mask_scale": "inverted"}])
def test_heads_with_dense_and_masked_gradients_and_without_a_mask_share_a_batch(options, bank):
    slots = [
        slot(seed=0, tau0=0.0, gradient="dense", **options),
        slot(seed=0, tau0=0.0, gradient="masked", **options),
        slot(seed=0, tau0=0.0, gradient="dense", q0=1.0, **options),
    ]
    together, _ = train(slots, bank)
    logits = together.predict(bank.test())
    assert not torch.equal(logits[0], logits[1])
    for number, single in enumerate(slots):
        alone, _ = train([single], bank)
        assert torch.equal(logits[number], alone.predict(bank.test())[0])
    unmasked, _ = train([slot("retrain", seed=0, shape="bottleneck")], bank)
    assert torch.equal(logits[2], unmasked.predict(bank.test())[0])


def test_a_diverged_head_leaves_the_others_alone(bank):
    slots = [slot("retrain", seed=0, lr=0.01), slot("retrain", seed=1, lr=1e30)]
    together, _ = train(slots, bank)
    alone, _ = train(slots[:1], bank)
    assert together.diverged_epoch[0] == -1
    assert together.diverged_epoch[1] >= 0
    assert torch.equal(together.predict(bank.test())[0], alone.predict(bank.test())[0])


@pytest.mark.parametrize(
    ("optimizer", "reference"),
    [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)],
)
def test_the_stacked_optimiser_equals_torch(optimizer, reference):
    torch.manual_seed(0)
    rates = [(0.1, 0.0), (0.01, 0.1)]
    slots = [
        slot("retrain", lr=lr, weight_decay=decay, slot={"optimizer": optimizer})
        for lr, decay in rates
    ]
    start = torch.randn(2, 3, 4)
    stacked = start.clone().requires_grad_()
    ours = StackedOptimizer(slots, {"w": stacked})
    singles = [start[k].clone().requires_grad_() for k in range(2)]
    extra = {"momentum": 0.9} if optimizer == "sgd" else {}
    theirs = [
        reference([single], lr=lr, weight_decay=decay, **extra)
        for single, (lr, decay) in zip(singles, rates, strict=True)
    ]
    corrections = ours.begin_steps(5)
    for number in range(5):
        gradient = torch.randn(2, 3, 4)
        stacked.grad = gradient.clone()
        ours.step(corrections={name: values[number] for name, values in corrections.items()})
        for k in range(2):
            singles[k].grad = gradient[k].clone()
            theirs[k].step()
    for k in range(2):
        assert torch.allclose(stacked[k], singles[k], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_frozen_entries_keep_their_values_and_their_moments(optimizer):
    chance = torch.Generator().manual_seed(0)
    slots = [slot("retrain", lr=0.1, weight_decay=0.1, slot={"optimizer": optimizer})] * 2
    weights = torch.randn(2, 3, 4, generator=chance).requires_grad_()
    stacked, mask = StackedOptimizer(slots, {"w": weights}), torch.ones(2, 3, 4)
    mask[0, 1], mask[1, :, 2] = 0, 0
    for frozen in ({}, {"w": mask}):
        corrections = {name: values[0] for name, values in stacked.begin_steps(1).items()}
        before = {"w": weights.detach().clone()}
        before |= {name: moment.clone() for name, moment in stacked.moments.items()}
        weights.grad = torch.randn(2, 3, 4, generator=chance)
        stacked.step(frozen, corrections=corrections)
    for name, tensor in {"w": weights.detach(), **stacked.moments}.items():
        assert torch.equal(tensor == before[name], mask == 0), name


def test_each_head_is_clipped_on_its_own():
    slots = [slot("retrain", lr=1.0, weight_decay=0.0, slot={"clip_grad_norm": 2.0})] * 2
    weights = torch.zeros(2, 1, 2, requires_grad=True)
    weights.grad = torch.tensor([[[30.0, 40.0]], [[0.3, 0.4]]])
    StackedOptimizer(slots, {"w": weights}).step({})
    assert torch.allclose(weights[0].norm(), torch.tensor(2.0), atol=1e-5)
    assert torch.allclose(weights[1], torch.tensor([[-0.3, -0.4]]))


def test_masks_zero_the_stored_weights_and_restrict_the_gradient(bank):
    trainer, _ = train([slot(tau0=0.0, q0=0.5, masked_update="freeze")], bank)
    for name in ("0.weight", "1.weight"):
        mask = trainer.method.masks[name]
        weights = trainer.method.parameters[name]
        assert (weights[mask == 0] == 0).all()
        assert 0.4 < mask.mean() < 0.6
    dense, _ = train([slot(tau0=0.0, q0=0.5, gradient="dense")], bank)
    assert (dense.method.parameters["0.weight"][dense.method.masks["0.weight"] == 0] != 0).any()


@pytest.mark.parametrize(
    ("gamma", "q0"), [(0.9, 0.5), (0.5, 0.32)]
)  # the second comes down to the floor of q
def test_sparsity_follows_equations_12_and_13(gamma, q0, bank):
    _, reports = train([slot(gamma=gamma, q0=q0, tau0=0.05, tau_decay=5.0)], bank)
    q = q0
    for epoch, report in enumerate(reports):
        assert report["q"].item() == pytest.approx(q, abs=1e-6)
        tau = 0.05 * math.exp(-5 * epoch / len(reports))
        assert report["tau"].item() == pytest.approx(tau, rel=1e-5)
        gap = gamma * report["train/accuracy"].item() - report["train/confidence"].item()
        q = min(1.0, max(0.3, q + max(-tau, min(tau, gap))))


@pytest.mark.parametrize(
    ("train", "select", "ratio"), [(0.8, 0.4, 0.5), (0.4, 0.8, 1.0), (0.0, 0.1, 1.0)]
)
def test_the_ratio_of_accuracies_is_of_select_over_train(train, select, ratio, bank, monkeypatch):
    monkeypatch.setitem(bank.manifest, "accuracy", {"train": train, "select": select})
    assert head_context(slot(), bank, CPU).val_ratio == ratio


@pytest.mark.parametrize(
    "own", [{"evaluation": "expected"}, {"evaluation": "last_mask", "mask_scale": "inverted"}]
)
def test_a_head_is_evaluated_with_the_q_that_its_weights_were_trained_under(own, bank):
    own = {"shape": "linear", "masking": "functional", "gamma": 0.1, **own}
    trainer, (report,) = train([slot(q0=q, **own) for q in (0.5, 0.8)], bank, epochs=1)
    q = report["q"].float()
    assert (trainer.method.q < q - 0.01).all()
    weight, bias = (trainer.method.parameters[name].detach() for name in ("0.weight", "0.bias"))
    is_inverted = "mask_scale" in own
    scale = q[:, None, None]
    scale = trainer.method.masks["0.weight"] / scale if is_inverted else scale
    expected = bank.select().features @ (scale * weight).mT + bias
    assert torch.allclose(trainer.predict(bank.select()), expected, atol=1e-5)


def test_a_continued_head_starts_as_the_networks_own(bank):
    trainer = HeadBatchTrainer([slot("retrain", start="continued")], bank, 0, CPU)
    split = bank.select()
    assert torch.allclose(trainer.predict(split)[0], split.logits, atol=1e-5)


FROZEN = {"start": "frozen", "shape": "linear", "masking": "functional", "tau0": 0.0}


@pytest.mark.parametrize("evaluation", ["last_mask", "expected", "mc"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_frozen_head_is_the_networks_own_under_masks(evaluation, optimiser, bank):
    own, split = (
        FROZEN | {"evaluation": evaluation, "slot": {"optimizer": optimiser}},
        bank.select(),
    )
    heads = [slot(seed=s, q0=q, weight_decay=0.1, **own) for s, q in enumerate((1.0, 0.5))]
    trainer, _ = train(heads, bank)
    for name, tensor in zip(("0.weight", "0.bias"), bank.own_head(), strict=True):
        for k in range(2):
            assert torch.equal(trainer.method.parameters[name][k].flatten(), tensor.flatten())
    whole, masked = trainer.predict(split).log_softmax(-1)
    assert torch.allclose(whole, split.logits.log_softmax(-1), atol=1e-4)
    assert not torch.allclose(masked, whole, atol=1e-2)


def test_a_fresh_head_has_the_pinned_hash():
    assert "start" not in slot(start="fresh").params.model_dump()


@pytest.mark.parametrize("order", ["shared", "own"])
def test_every_epoch_has_another_batch_order(order, bank):
    slots = [slot(seed=seed, slot={"batch_order": order}) for seed in range(2)]
    trainer = HeadBatchTrainer(slots, bank, 0, CPU)
    orders = []
    for trainer.epoch in range(3):
        orders.append(trainer._order(40).reshape(-1, 40)[0].tolist())
    assert [sorted(each) for each in orders] == [list(range(40))] * 3
    assert orders[0] != orders[1] != orders[2] != orders[0]


class ScaledViews:
    """A bank of three views of train, each with larger features than the one before."""

    views = 3

    def __init__(self, bank):
        self.bank = bank

    def __getattr__(self, name):
        return getattr(self.bank, name)

    def train(self, view=0):
        split = self.bank.train()
        return replace(split, features=split.features * 10**view)
