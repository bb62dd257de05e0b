"""What is known of all images of a data set: a digest, and the moments of their pixels."""

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Summary:
    """Digest and moments of all images and labels of a data set.

    Attributes:
        digest: of pixels and labels of both parts, 16 hexadecimal digits.
        mean: of the pixels of the training part, scaled to [0, 1], per channel, four decimals.
        std: standard deviation of the same.
    """

    digest: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def blank(cls, channels: int) -> Self:
        """Return a summary whose text is as long as any other."""
        return cls("0" * 16, (0.0,) * channels, (0.0,) * channels)

    def written(self) -> str:
        """Return a text of one length."""
        return " ".join([self.digest, *(f"{value:.4f}" for value in (*self.mean, *self.std))])

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what ``written`` gave; a ValueError is raised for anything else."""
        digest, *values = text.split()
        numbers = tuple(float(value) for value in values)
        channels = len(numbers) // 2
        return cls(digest, numbers[:channels], numbers[channels:])


@dataclass
class Tally:
    """Adds up images as they come, the training part first."""

    checks: list[list[int]] = field(default_factory=list)
    _sums: list[NDArray[np.int64]] = field(default_factory=list)
    _pixels: int = 0

    def begin(self) -> list[int]:
        """Begin a part; the CRC-32 of each of its images is put into what is returned."""
        self.checks.append([])
        return self.checks[-1]

    def add(self, images: NDArray[np.uint8]) -> None:
        """Count some images of the part, (N, C, H, W)."""
        images = np.ascontiguousarray(images)
        self.checks[-1] += [zlib.crc32(image.data) for image in images]
        if len(self.checks) == 1:
            # In integers, whose sums are the same in any order.
            flat = images.transpose(1, 0, 2, 3).reshape(images.shape[1], -1)
            counts = [np.bincount(channel, minlength=256) for channel in flat]
            values = np.arange(256)
            sums = [[int(count @ values), int(count @ values**2)] for count in counts]
            self._sums.append(np.array(sums, np.int64))
            self._pixels += flat.shape[1]

    def summary(self, labels: Iterable[Tensor]) -> Summary:
        """Return digest and moments, given the labels of both parts."""
        digest = hashlib.sha256()
        for own, checks in zip(labels, self.checks, strict=True):
            digest.update(own.contiguous().numpy().tobytes())
            digest.update(np.array(checks, np.int64).tobytes())
        first, second = np.sum(self._sums, 0).T / self._pixels
        std = np.sqrt(np.maximum(second - first**2, 0))
        return Summary(digest.hexdigest()[:16], _scaled(first), _scaled(std))


def _scaled(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(value) / 255, 4) for value in values)
