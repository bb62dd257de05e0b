"""Reading the views of a bank for the training of heads: in order, several batches at once."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # otherwise only torch is needed, for the benchmark on a bare machine
    from tune_calib.engine.bank import DevelopmentBank, FeatureSplit

# Size of the features that are gathered together: several batches, which fit a processor's cache.
GATHERED_BYTES = 2**20

# Share of a device's free memory for a view; the rest is for training.
SHARE_OF_FREE = 0.5


class Views:
    """Views of the training split on a device, with as few as possible in memory."""

    def __init__(self, bank: "DevelopmentBank", device: torch.device) -> None:
        self.bank, self.device = bank, device
        self.held: dict[int, FeatureSplit] = {}

    def view(self, index: int) -> "FeatureSplit":
        """Return one view: a memory map of its file, or a copy on a GPU with enough memory."""
        if index not in self.held:
            split = self.bank.train(index)
            if self.device.type == "cpu":
                # Dropping the previous map frees the memory of its pages.
                self.held = {index: split}
            elif split.features.nbytes >= SHARE_OF_FREE * torch.cuda.mem_get_info(self.device)[0]:
                return split
            else:
                features = split.features.to(self.device)
                labels = split.labels.to(self.device)
                # Without logits, which training does not read.
                none = features[:, :0]
                self.held[index] = replace(split, features=features, logits=none, labels=labels)
        return self.held[index]

    def batches(
        self, split: "FeatureSplit", order: Tensor, size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features (B, D) and labels (B,), or (K, B, D) and (K, B), on the device.

        ``order`` holds the order of an epoch on the CPU, (N,), or (K, N) with one per head.
        """
        order = _sent(order, split.features.device)
        row = split.features[:1].nbytes
        together = 1 if order.ndim == 2 else max(1, GATHERED_BYTES // (row * size))
        for positions in order.split(together * size, dim=-1):
            features = _sent(_take_rows(split.features, positions), self.device)
            labels = _sent(_take_rows(split.labels, positions), self.device)
            if order.ndim == 2:
                yield features, labels
            else:
                yield from zip(features.split(size), labels.split(size), strict=True)


def _take_rows(rows: Tensor, positions: Tensor) -> Tensor:
    # Equivalent to indexing, but faster.
    found = rows.index_select(0, positions.flatten())
    return found.view(*positions.shape, *rows.shape[1:])


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting for a GPU."""
    # Not by equality: ``cuda`` and ``cuda:0`` differ, although they are the same GPU.
    if tensor.is_cuda or device.type == "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
