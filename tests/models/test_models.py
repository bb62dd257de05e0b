"""Models: parameter counts of the papers, features, initialisation, errors."""

from functools import partial

import pytest
import torch
from torch import nn

from tests.support import sample
from tune_calib.engine.execution import compiling
from tune_calib.errors import RefusedError, UserError
from tune_calib.models.backbones.small import GlobalMax, PatchTransform
from tune_calib.models.network import Network, Output, build_network
from tune_calib.spec.backbones import BACKBONES


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    sample(
        [
            ("resnet50", 10, 23_520_842),
            ("resnet50", 100, 23_705_252),
            ("resnet101", 10, 42_512_970),
            ("resnet101", 100, 42_697_380),
            ("resnet110", 10, 45_864_522),
            ("resnet110", 100, 46_048_932),
            ("wrn26_10", 10, 36_481_434),
            ("wrn26_10", 100, 36_539_124),
            ("wrn28_10", 10, 36_479_194),
            ("wrn28_10", 100, 36_536_884),
            ("densenet121", 10, 6_956_298),
            ("densenet121", 100, 7_048_548),
        ],
        6,
    ),
)
def test_parameter_counts_are_those_of_the_papers(name: str, classes: int, expected: int):
    with torch.device("meta"):
        backbone, width = BACKBONES[name].build(3, 32, "reference")
        network = Network(backbone, width, classes)
    assert parameters(network) == expected


def test_a_global_maximum_and_its_gradient_equal_those_of_adaptive_pooling():
    maps = torch.randn(4, 8, 7, 7, generator=torch.Generator().manual_seed(0)).relu().round()
    results = []
    for pool in (GlobalMax(), nn.AdaptiveMaxPool2d(1)):
        for layout in (torch.contiguous_format, torch.channels_last):
            leaf = maps.clone(memory_format=layout).requires_grad_()
            pool(leaf).flatten(1).square().sum().backward()
            results.append(leaf.grad)
    assert all(torch.equal(results[0], gradient) for gradient in results)  # also of equal values


@pytest.mark.parametrize(
    ("name", "expected"), [("resnet50", 25_138_952), ("resnet101", 44_131_080)]
)
def test_the_size_of_the_images_decides_on_the_networks_of_tiny_imagenet(name: str, expected: int):
    with torch.device("meta"):
        backbone, width = BACKBONES[name].build(3, 64, "reference")
        network = Network(backbone, width, 200)
        features = network(torch.zeros(2, 3, 64, 64)).features
    assert parameters(network) == expected
    assert features.shape == (2, width) == (2, 8192)
    assert network.stages()[-1](torch.zeros(2, 2048, 8, 8)).shape == (2, 8192)


@pytest.mark.slow
@pytest.mark.parametrize(("init", "scale"), [("reference", 1.0), ("timm", 0.0)])
def test_the_networks_of_tiny_imagenet_are_drawn_with_fan_out(init: str, scale: float):
    torch.manual_seed(0)
    backbone, _ = BACKBONES["resnet50"].build(3, 64, init)
    block = backbone.layer2[1]
    assert float(block.conv2.weight.detach().std()) == pytest.approx((2 / 1152) ** 0.5, rel=0.05)
    assert bool((block.bn3.weight == scale).all())


@pytest.mark.parametrize("init", sample(["reference", "timm"], 1))
def test_wrn28_10_is_that_of_tst_and_balcal(init: str):
    torch.manual_seed(0)
    backbone, width = BACKBONES["wrn28_10"].build(3, 32, init)
    assert width == 640
    norms = [m for m in backbone.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {m.momentum for m in norms} == {0.01}
    parts = {"stem": 16 * 9, "stages.0.blocks.1.conv1": 160 * 9}
    modules = dict(backbone.named_modules())
    for name, fan_out in parts.items():
        expected = pytest.approx((2 / fan_out) ** 0.5, rel=0.1)
        assert float(modules[name].weight.detach().std()) == expected
    is_zero = not bool(modules["stages.1.blocks.2.conv2"].weight.any())
    assert is_zero == (init == "timm")
    with torch.no_grad():
        network = Network(backbone, width, 10).eval()
        images = torch.randn(1, 3, 32, 32)
        features = images
        for stage in network.stages():
            features = stage(features)
        assert torch.equal(features, network(images).features)
    assert float(features.min()) >= 0
    # The 3x3 convolution of stride 2 sees nothing left of and above the image.
    down = modules["stages.1.blocks.0.conv1"]
    corner = torch.zeros(1, 160, 4, 4)
    corner[0, 0, 2, 2] = 1
    torch.testing.assert_close(down(corner)[0, :, 1, 1], down.weight[:, 0, 0, 0])


def test_components_of_patches_are_orthonormal_and_of_variance_1():
    transform = PatchTransform(3).train()
    basis = transform.basis.flatten(1)
    torch.testing.assert_close(basis @ basis.T, torch.eye(12))
    # Images whose neighbouring pixels and channels are correlated, as in photographs.
    images = torch.randn(64, 3, 9, 9) + 3 * torch.randn(64, 1, 9, 9).cumsum(2).cumsum(3)
    positive, negative = transform(images).chunk(2, dim=1)
    components = positive - negative
    assert components.shape == (64, 12, 8, 8)
    torch.testing.assert_close(components.var((0, 2, 3)), torch.ones(12), atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("name", "channels", "size"),
    [
        *((name, 3, 32) for name in ("small_cnn", "fast_cnn", "fast_dct", "resnet8", "resnet20")),
        *((name, 1, 8) for name in ("small_cnn", "fast_dct", "resnet8", "resnet10t")),
    ],
)
def test_features_are_non_negative_and_the_input_of_the_head(name: str, channels: int, size: int):
    network = build_network(name, "reference", channels, size, 7, seed=0).eval()
    with torch.no_grad():
        output = network(torch.randn(3, channels, size, size))
    assert isinstance(output, Output)
    assert output.features.shape == (3, network.width)
    assert output.logits.shape == (3, 7)
    assert float(output.features.min()) >= 0
    assert torch.equal(output.logits, network.head(output.features))


def test_the_last_convolutions_of_a_narrow_resnet_see_a_quarter_of_the_side():
    network = build_network("resnet8", "reference", 3, 32, 10, seed=0)
    *stages, _ = network.stages()
    features, sides = torch.zeros(1, 3, 32, 32), []
    for stage in stages:
        features = stage(features)
        sides.append(features.shape[-1])
    assert sides == [32, 32, 16, 8, 8]


@pytest.mark.parametrize("name", ["resnet8", "resnet10t"])
def test_weights_depend_on_the_seed_alone(name: str):
    torch.manual_seed(1)
    first = build_network(name, "reference", 3, 32, 10, seed=0).state_dict()
    torch.manual_seed(2)
    again = build_network(name, "reference", 3, 32, 10, seed=0).state_dict()
    other = build_network(name, "reference", 3, 32, 10, seed=1).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def last_scales(backbone: nn.Module) -> list[float]:
    modules = dict(backbone.named_modules())
    blocks = [m for n, m in modules.items() if n.endswith("bn2")]
    return [float(m.weight.detach().abs().sum()) for m in blocks if isinstance(m, nn.BatchNorm2d)]


@pytest.mark.parametrize("name", ["resnet18", "resnet8"])
def test_reference_and_timm_initialisation_differ_as_documented(name: str):
    torch.manual_seed(0)
    reference, _ = BACKBONES[name].build(3, 32, "reference")
    timm, _ = BACKBONES[name].build(3, 32, "timm")
    assert min(last_scales(reference)) > 0
    assert max(last_scales(timm)) == 0
    for kind, backbone in (("reference", reference), ("timm", timm)):
        for module in backbone.modules():
            if isinstance(module, nn.Conv2d) and module.weight.numel() > 4000:
                weight = module.weight
                fan_in, fan_out = weight[0].numel(), weight.shape[0] * weight[0, 0].numel()
                expected = (1 / 3 / fan_in) ** 0.5 if kind == "reference" else (2 / fan_out) ** 0.5
                assert float(weight.detach().std()) == pytest.approx(expected, rel=0.06)


@pytest.mark.slow
def test_wide_resnet_is_drawn_with_fan_out_in_both_initialisations():
    for init in ("reference", "timm"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            backbone, _ = BACKBONES["wrn26_10"].build(3, 32, init)
        first = backbone.layer1[0]
        assert float(first.conv1.weight.detach().std()) == pytest.approx(
            (2 / 1440) ** 0.5, rel=0.05
        )
        scale = 0.0 if init == "timm" else 1.0
        assert bool((first.bn2.weight == scale).all())
        assert bool((first.downsample[1].weight == 1).all())


def test_resnets_of_timm_get_the_cifar_stem_on_small_images_only():
    with torch.device("meta"):
        small, _ = BACKBONES["resnet18"].build(3, 64, "reference")
        large, _ = BACKBONES["resnet18"].build(3, 96, "reference")
        deep, _ = BACKBONES["resnet18d"].build(1, 32, "timm")
    assert small.conv1.kernel_size == deep.conv1.kernel_size == (3, 3)
    assert deep.conv1.in_channels == 1
    assert isinstance(small.maxpool, nn.Identity)
    assert large.conv1.kernel_size == (7, 7)
    assert isinstance(large.maxpool, nn.MaxPool2d)


def test_other_families_of_timm_work():
    network = build_network("vit_tiny_patch16_224", "timm", 3, 32, 10, seed=0)
    assert network(torch.randn(2, 3, 32, 32)).features.shape == (2, network.width)
    assert network.training


def test_a_model_that_cannot_take_the_images_is_one_line():
    with pytest.raises(UserError, match="cannot run 'vit_tiny_patch16_224' on 1x8x8") as error:
        build_network("vit_tiny_patch16_224", "reference", 1, 8, 10, seed=0)
    assert "\n" not in str(error.value)


class _Flat(nn.Module):
    """A backbone of one linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(16, width)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images.flatten(1))


@pytest.fixture
def compiled_for(monkeypatch):
    """The sizes of batches for which a backbone is compiled; that for any size is no number."""
    sizes = []

    def backend(module, inputs):
        sizes.extend(tensor.shape[0] for tensor in inputs if tensor.ndim == 4)
        return module.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    return sizes


def features_of(network: Network, size: int) -> None:
    with network.compiled():
        network.features(torch.ones(size, 1, 4, 4))


def test_every_backbone_of_a_process_is_compiled(compiled_for):
    networks = [Network(_Flat(width), width, 2) for width in range(1, 11)]
    for network in networks:
        features_of(network, 5)
    assert compiled_for == [5] * len(networks)


def test_a_backbone_that_torch_compiles_too_often_is_refused_and_not_left_uncompiled(compiled_for):
    network = Network(_Flat(3), 3, 2)
    with (
        pytest.raises(RefusedError, match=r"cannot compile flat .*recompile_limit"),
        compiling(network, "flat", lambda: list(map(network.features, IMAGES_OF_MANY_SIZES))),
    ):
        pass
    assert len(compiled_for) < len(IMAGES_OF_MANY_SIZES)


IMAGES_OF_MANY_SIZES = [torch.ones(size, 1, 4, 4) for size in range(2, 20)]


def test_building_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    build_network("small_cnn", "reference", 1, 8, 10, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
