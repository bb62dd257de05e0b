"""Augmentation and normalisation."""

import pytest
import torch
from torch.nn import functional as F

from tune_calib.data.augment import crop_flip, draw_views, normalise
from tune_calib.spec.datasets import DATASETS


def naive(images: torch.Tensor, padding: int, flip: bool, seed: int) -> torch.Tensor:
    generator, samples = torch.Generator().manual_seed(seed), len(images)
    rows = columns = torch.full((samples,), padding)
    bits = torch.zeros(samples)
    if padding:
        rows, columns = torch.randint(0, 2 * padding + 1, (2, samples), generator=generator)
    if flip:
        bits = torch.randint(0, 2, (samples,), generator=generator)
    result = []
    for image, row, column, bit in zip(images, rows, columns, bits, strict=True):
        border = F.pad(image, [padding] * 4)
        crop = border[:, row : row + image.shape[1], column : column + image.shape[2]]
        result.append(crop.flip(2) if bit else crop)
    return torch.stack(result)


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 8, 8), (64, 3, 32, 32), (5, 3, 6, 9)])
def test_augmentation_equals_the_naive_one(padding: int, flip: bool, shape: tuple[int, ...]):
    images = torch.randint(0, 256, shape, dtype=torch.uint8)
    copy = images.clone()
    generator = torch.Generator().manual_seed(3)
    augmented = crop_flip(images, draw_views([len(images)], padding, flip, generator))
    assert augmented.dtype == torch.uint8
    assert augmented.is_contiguous()
    assert torch.equal(augmented, naive(images, padding, flip, 3))
    assert torch.equal(images, copy)


def test_augmentation_reaches_every_offset_and_both_sides():
    images = torch.zeros(4000, 1, 3, 3, dtype=torch.uint8)
    images[:, :, 1, 1] = 255
    draws = draw_views([4000], 1, True, torch.Generator().manual_seed(0))
    augmented = crop_flip(images, draws)
    positions = augmented.flatten(1).argmax(1).bincount(minlength=9)
    assert bool((positions > 300).all())


def test_normalisation_is_that_of_torchvision():
    from torchvision.transforms.functional import normalize

    info, images = DATASETS["cifar10"], torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    expected = normalize(images.float() / 255, list(info.mean), list(info.std))
    normalised = normalise(images, info)
    assert normalised.dtype == torch.float32
    assert torch.equal(normalised, expected)
