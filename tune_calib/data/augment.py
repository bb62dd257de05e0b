"""Normalisation and augmentation of whole batches of raw images, on the device where they live."""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from tune_calib.data.base import DatasetInfo


def normalise(images: Tensor, info: DatasetInfo) -> Tensor:
    """Scale raw pixels to [0, 1], subtract the mean and divide by the standard deviation.

    Args:
        images: (N, C, H, W), uint8.
        info: the data set, for its constants.

    Returns:
        (N, C, H, W), float32, on the same device.
    """
    mean, std = _constants(info.mean, info.std, images.device)
    # In place, since the conversion has made a copy; in the order of torchvision, to its last bit.
    return images.to(torch.float32).div_(255).sub_(mean).div_(std)


@lru_cache(maxsize=32)
def _constants(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    # Kept: a copy to a GPU at every batch would make the CPU wait for it.
    return tuple(torch.tensor(x, device=device)[:, None, None] for x in (mean, std))  # type: ignore[return-value]


def random_crop_flip(
    images: Tensor, padding: int, flip: bool, generator: torch.Generator
) -> Tensor:
    """Crop each image at random from itself with a black border, then mirror half of them.

    The border is black in raw pixels, before normalisation, as in the published recipes.

    Args:
        images: (N, C, H, W), uint8.
        padding: width of the border in pixels; 0 is no crop, and draws nothing.
        flip: whether to mirror left and right with probability 1/2; false draws nothing.
        generator: of the CPU, so that the draws do not depend on the device. It gives, in this
            order, N rows and N columns in [0, 2 * padding], then N bits.

    Returns:
        (N, C, H, W), uint8, on the same device; ``images`` is not changed.
    """
    samples, device = len(images), images.device
    if padding:
        offsets = torch.randint(0, 2 * padding + 1, (2, samples), generator=generator).to(device)
        images = _crop(images, padding, offsets)
    if flip:
        mirrored = torch.randint(0, 2, (samples, 1, 1, 1), generator=generator).to(device)
        images = torch.where(mirrored.bool(), images.flip(3), images)
    return images


def _crop(images: Tensor, padding: int, offsets: Tensor) -> Tensor:
    """Windows of the padded images at rows ``offsets[0]`` and columns ``offsets[1]``."""
    height, width = images.shape[2:]
    border = F.pad(images, [padding] * 4)
    # Views of every window: the images are copied once, by the index, and not one by one.
    windows = border.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(images), device=images.device), :, offsets[0], offsets[1]]
