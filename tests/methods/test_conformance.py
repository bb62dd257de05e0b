"""What every method of the registry must do, whatever it is."""

import copy
import shutil

import pytest
import torch
from torch import Tensor, nn

from tests.support import small_spec
from tune_calib.methods._base import Batch, EpochFeedback, NetworkContext, NetworkMethod
from tune_calib.models.base import declare_stages
from tune_calib.models.network import Network
from tune_calib.registry import METHODS
from tune_calib.results import read_table
from tune_calib.tuning.backend.rows import Circumstances
from tune_calib.tuning.backend.trainables import trainable

UNSTABLE = ["wall_s", "own_s", "peak_memory_bytes", "actor_resets"]
NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]
SAMPLES, WIDTH = 12, 128

# The order of a batch decides whom a sample is paired with.
PAIRED_BY_ORDER = {"crl", "mixup", "mit_l", "mit_a"}


def network(classes: int) -> Network:
    """Two small stages and a linear head, with no normalisation that would couple samples."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, WIDTH, 3))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Softplus())
    backbone = nn.Sequential(body, pool)
    declare_stages(backbone, list)
    return Network(backbone, WIDTH, classes)


def method_on(
    name: str, net: Network, classes: int, dtype=torch.float32, epochs: int = 4
) -> NetworkMethod:
    info = METHODS[name]
    context = NetworkContext(classes, WIDTH, SAMPLES, epochs, seed=0)
    method = info.implementation(info.params(), context)
    method.adapt(net)
    net.to(dtype)
    method.to(dtype)
    method.begin_epoch(0, torch.Generator().manual_seed(1))
    return method


def batch(classes: int, dtype=torch.float32, order: Tensor | None = None) -> Batch:
    chance = torch.Generator().manual_seed(2)
    images = torch.randn(SAMPLES, 1, 6, 6, generator=chance, dtype=torch.float64).to(dtype)
    labels = torch.arange(SAMPLES) % classes
    order = torch.arange(SAMPLES) if order is None else order
    return Batch(images[order], labels[order], order)


@pytest.mark.parametrize("classes", [2, 5, 100])
@pytest.mark.parametrize("name", NETWORKS)
def test_loss_and_gradient_are_finite_for_few_and_many_classes(name, classes):
    net = network(classes)
    method = method_on(name, net, classes)
    step = method.step(net, batch(classes))
    step.loss.backward()
    assert step.loss.ndim == 0
    assert step.logits.shape == (SAMPLES, classes)
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    assert gradients
    assert all(g.isfinite().all() for g in gradients)
    method.after_step(step.logits.detach(), batch(classes).labels, torch.arange(SAMPLES))
    feedback = EpochFeedback(step.logits.detach(), batch(classes).labels)
    report = method.end_epoch(0, feedback)
    assert all(torch.tensor(value).isfinite() for value in report.values())
    output = method.eval()(net.eval(), batch(classes).images)
    assert output.logits.shape == (SAMPLES, classes)


def last_bias(net, method) -> Tensor:
    """Bias of the classifier: the network's own, or that of a method that brings one."""
    return [p for p in (*net.parameters(), *method.parameters()) if p.shape == (3,)][-1]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_gradient_is_that_of_the_loss(name):
    def value(weight: Tensor | None) -> Tensor:
        net = network(3)
        method = method_on(name, net, 3, torch.float64)
        bias = last_bias(net, method)
        if weight is not None:
            bias.data.copy_(weight)
        loss = method.step(net, batch(3, torch.float64)).loss
        if weight is None:
            loss.backward()
            return bias.grad
        return loss.detach()

    gradient = value(None)
    net = network(3)
    start = last_bias(net, method_on(name, net, 3, torch.float64)).detach().double()
    for k in range(3):
        shift = torch.zeros(3, dtype=torch.float64)
        shift[k] = 1e-6
        slope = (value(start + shift) - value(start - shift)) / 2e-6
        assert gradient[k].item() == pytest.approx(slope.item(), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("name", [n for n in NETWORKS if n not in PAIRED_BY_ORDER])
def test_the_order_of_a_batch_does_not_matter(name):
    def loss(order: Tensor | None) -> float:
        net = network(4)
        method = method_on(name, net, 4, torch.float64)
        return method.step(net, batch(4, torch.float64, order)).loss.item()

    shuffled = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(3))
    assert loss(shuffled) == pytest.approx(loss(None), rel=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_under_bfloat16_is_finite(name):
    net = network(10)
    method = method_on(name, net, 10).cuda()
    given = batch(10)
    moved = Batch(given.images.cuda(), given.labels.cuda(), given.indices.cuda())
    with torch.autocast("cuda", torch.bfloat16):
        loss = method.step(net.cuda(), moved).loss
    assert loss.isfinite()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_loss_falls_on_a_problem_that_can_be_learned(name):
    epochs = 80
    net = network(3)
    method = method_on(name, net, 3, epochs=epochs)
    given, untrained = batch(3), copy.deepcopy(net)
    optimizer = torch.optim.Adam([*net.parameters(), *method.parameters()], lr=3e-3)
    for epoch in range(epochs):
        method.begin_epoch(epoch, torch.Generator().manual_seed(epoch))
        step = method.step(net, given)
        optimizer.zero_grad()
        step.loss.backward()
        optimizer.step()
        method.after_step(step.logits.detach(), given.labels, given.indices)
        logits = method.eval()(net, given.images).logits.detach()
        method.train().end_epoch(epoch, EpochFeedback(logits, given.labels))

    def loss_of(weights):
        # Under one state of the method: losses of different states are not comparable.
        method.begin_epoch(epochs - 1, torch.Generator().manual_seed(0))
        return method.step(weights, given).loss.item()

    assert loss_of(net) < loss_of(untrained)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_reset_actor_equals_a_fresh_one(name, trained, tmp_path):
    def config(seed, out):
        slots = small_spec().model_dump(mode="json")
        own = {"method": name, "seed": seed, "epochs": 1, "augment": "none"}
        match METHODS[name].kind:
            case "network":
                slots |= {"network": own, "data": {"train_fraction": 0.2}}
            case "head":
                slots["head"] = own
            case _:
                slots["posthoc"] = {"method": name}
        run = Circumstances(out=str(tmp_path / out), store=str(trained.root), git_revision=None)
        return {**slots, "run": run.plain()}

    def drive(actor):
        while not actor.step().get("done"):
            pass

    actor = trainable(name)(config(10, "first"))
    drive(actor)
    assert actor.reset(config(11, "reset"))
    drive(actor)
    actor.cleanup()
    if METHODS[name].kind == "network":
        # The fresh actor must train it again and not read it from the store.
        shutil.rmtree(trained.folder("networks", actor.spec.network_id))
    drive(trainable(name)(config(11, "fresh")))
    reset, fresh = (read_table(tmp_path / out, "trials") for out in ("reset", "fresh"))
    assert reset["actor_resets"].to_pylist() == [1]
    assert reset.drop_columns(UNSTABLE).equals(fresh.drop_columns(UNSTABLE))
