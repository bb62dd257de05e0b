"""Generated corruptions: what they leave, how they grow, and that batches decide nothing."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from tune_calib.data.corruptions.kinds import KINDS, SEVERITIES, VERSION, corrupted
from tune_calib.data.corruptions.maps import Chance, blurred, zoomed

COLOUR = list(KINDS)
GREY = [name for name in KINDS if not KINDS[name].needs_colour]


def smooth_images(channels=3, side=32, samples=24):
    """Images with edges and slopes: noise alone would be as near to its blur at any severity."""
    chance = np.random.default_rng(0)
    noise = chance.random((samples, channels, side, side))
    smooth = ndimage.gaussian_filter(noise, (0, 0, side / 16, side / 16))
    low, high = (f(smooth, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    return torch.from_numpy((30 + 200 * (smooth - low) / (high - low)).astype(np.uint8))


@pytest.mark.parametrize("kind", COLOUR)
def test_corruptions_depend_on_the_image_and_not_on_its_batch(kind):
    images, indices = smooth_images(), torch.randperm(10_000)[:24]
    together = corrupted(images, indices, kind, 3)
    turned = corrupted(images.flip(0), indices.flip(0), kind, 3).flip(0)
    alone = torch.cat(
        [corrupted(images[k : k + 1], indices[k : k + 1], kind, 3) for k in range(24)]
    )
    assert torch.equal(turned, together)
    assert torch.equal(alone, together)


# Mean of the pixels in grey levels at severity 3.
MADE = {
    "gaussian_noise": 132.06,
    "shot_noise": 132.09,
    "impulse_noise": 132.45,
    "speckle_noise": 132.11,
    "defocus_blur": 132.10,
    "glass_blur": 131.55,
    "motion_blur": 132.16,
    "zoom_blur": 132.09,
    "gaussian_blur": 132.09,
    "snow": 160.02,
    "fog": 123.34,
    "brightness": 164.34,
    "contrast": 132.10,
    "elastic_transform": 131.96,
    "pixelate": 132.75,
    "jpeg_compression": 132.55,
    "saturate": 119.72,
}


@pytest.mark.parametrize("kind", COLOUR)
def test_corrupted_images_have_the_pinned_digest(kind):
    """Where they are others on purpose, ``corruptions.VERSION`` rises."""
    assert VERSION == 2
    images = smooth_images()
    found = corrupted(images, torch.arange(24), kind, 3).float()
    assert float(found.mean()) == pytest.approx(MADE[kind], abs=0.02)


@pytest.mark.parametrize(
    "kind", ["gaussian_noise", "shot_noise", "impulse_noise", "snow", "fog", "glass_blur"]
)
def test_severities_and_images_have_noise_of_their_own(kind):
    images = smooth_images(samples=1).expand(3, -1, -1, -1)
    found = corrupted(images, torch.tensor([0, 1, 0]), kind, 2)
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert not torch.equal(corrupted(images, torch.tensor([0, 1, 0]), kind, 3)[0], found[0])


@pytest.mark.parametrize("side", [8, 28, 64, 96])
@pytest.mark.parametrize("kind", GREY)
def test_grey_images_and_other_sizes_can_be_corrupted(kind, side):
    images = smooth_images(1, side, 3)
    for severity in (1, 5):
        worse = corrupted(images, torch.arange(3), kind, severity)
        assert worse.shape == images.shape


def test_noise_has_the_moments_of_its_density():
    grey = torch.full((40, 3, 32, 32), 128, dtype=torch.uint8)
    indices = torch.arange(40)
    for severity, deviation in zip(SEVERITIES, KINDS["gaussian_noise"].strengths, strict=True):
        found = corrupted(grey, indices, "gaussian_noise", severity).double() / 255
        assert float(found.std()) == pytest.approx(deviation, rel=0.02)
    for severity, photons in zip(SEVERITIES, KINDS["shot_noise"].strengths, strict=True):
        found = corrupted(grey, indices, "shot_noise", severity).double() / 255
        assert float(found.mean()) == pytest.approx(128 / 255, abs=0.004)
        assert float(found.std()) == pytest.approx((128 / 255 / photons) ** 0.5, rel=0.03)
    for severity, share in zip(SEVERITIES, KINDS["impulse_noise"].strengths, strict=True):
        found = corrupted(grey, indices, "impulse_noise", severity)
        changed = (found != 128).double().mean()
        assert float(changed) == pytest.approx(share, rel=0.1)
        assert set(found.unique().tolist()) == {0, 128, 255}


def test_numbers_are_uniform_and_normal_and_never_beyond_their_bounds():
    chance = Chance(1, torch.arange(100))
    drawn = chance.uniform(1000)
    assert stats.kstest(drawn.flatten(), "uniform").pvalue > 1e-3
    assert 0 < float(drawn.min()) <= float(drawn.max()) < 1
    normal = chance.normal(1000)
    assert stats.kstest(normal.flatten(), "norm").pvalue > 1e-3
    # Neither neighbouring images nor neighbouring numbers know of each other.
    assert abs(np.corrcoef(normal[0], normal[1])[0, 1]) < 0.15
    assert abs(np.corrcoef(normal.flatten()[:-1], normal.flatten()[1:])[0, 1]) < 0.015


@pytest.mark.parametrize("deviation", [0.05, 0.4, 1.0, 3.2])
@pytest.mark.parametrize("border", ["nearest", "reflect"])
def test_blur_is_that_of_scipy(deviation, border):
    images = smooth_images().double() / 255
    found = blurred(images.float(), deviation, border)
    wanted = ndimage.gaussian_filter(images.numpy(), (0, 0, deviation, deviation), mode=border)
    assert np.abs(found.numpy() - wanted).max() < 1e-5


@pytest.mark.parametrize("factor", [1.0, 1.07, 1.25, 2.25])
def test_zoom_is_that_of_scipy(factor):
    images = smooth_images(samples=3).double() / 255
    found = zoomed(images.float(), factor)
    window = int(np.ceil(32 / factor))
    top = (32 - window) // 2
    middle = images[..., top : top + window, top : top + window].numpy()
    large = ndimage.zoom(middle, (1, 1, factor, factor), order=1)
    rest = (large.shape[-1] - 32) // 2
    assert np.abs(found.numpy() - large[..., rest : rest + 32, rest : rest + 32]).max() < 1e-5


@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 28), (3, 64), (3, 224)])
def test_pixelate_is_pillows_to_the_byte(channels, side):
    # Bytes of any value: smooth images seldom meet the halves that programs round differently.
    chance = np.random.default_rng(0)
    images = torch.from_numpy(chance.integers(0, 256, (4, channels, side, side), dtype=np.uint8))
    for severity, share in zip(SEVERITIES, KINDS["pixelate"].strengths, strict=True):
        found = corrupted(images, torch.arange(4), "pixelate", severity)
        for one, image in zip(found, images, strict=True):
            expected = Image.fromarray(image.permute(1, 2, 0).numpy().squeeze())
            for size in (int(side * share), side):
                expected = expected.resize((size, size), Image.Resampling.BOX)
            assert np.array_equal(one.permute(1, 2, 0).numpy().squeeze(), np.asarray(expected))
