"""What every network method of the registry must do, whatever it is."""

import pytest
import torch
from torch import Tensor, nn

from tune_calib.methods._base import Batch, EpochFeedback, NetworkContext, NetworkMethod
from tune_calib.models.base import declare_stages
from tune_calib.models.network import Network
from tune_calib.registry import METHODS

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


def method_on(name: str, net: Network, classes: int, dtype=torch.float32) -> NetworkMethod:
    info = METHODS[name]
    context = NetworkContext(classes, WIDTH, SAMPLES, epochs=4, seed=0)
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


@pytest.mark.parametrize("name", NETWORKS)
def test_the_gradient_is_that_of_the_loss(name):
    def value(weight: Tensor | None) -> Tensor:
        net = network(3)
        method = method_on(name, net, 3, torch.float64)
        if weight is not None:
            net.head.bias.data.copy_(weight)
        loss = method.step(net, batch(3, torch.float64)).loss
        if weight is None:
            loss.backward()
            return net.head.bias.grad
        return loss.detach()

    gradient = value(None)
    start = network(3).head.bias.detach().double()
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
