"""Predictions of networks for raw images, chunk by chunk."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tune_calib.data.augment import normalise
from tune_calib.data.base import Images, Split
from tune_calib.engine.machine import map_at_once
from tune_calib.methods._base import NetworkMethod
from tune_calib.metrics.validation import to_array
from tune_calib.models.network import Network, evaluating
from tune_calib.progress import report_progress
from tune_calib.spec.datasets import DatasetInfo

Outputs = tuple[Tensor, Tensor]  # features (N, D) and logits (N, C)

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

# Must not be changed: it determines the random views of a bank, and the statistics of batch
# normalisation in train mode.
EVALUATION_BATCH = 500
LARGEST_OF_FULL_BATCH = 96

# Packages whose modules keep nothing of a forward pass, so that threads may share them.
STATELESS = ("torch", "torchvision", "timm", "tune_calib")


@dataclass(frozen=True)
class TrainedNetwork:
    network: Network
    method: NetworkMethod
    manifest: dict[str, Any]


class ImageCounter:
    """Counts the images of a pass in progress events, also over several splits."""

    def __init__(self, total: int, description: str = "images") -> None:
        self.total, self.description, self.completed = total, description, 0

    def count(self, outputs: Iterable[Outputs]) -> Iterator[Outputs]:
        report_progress(self.description, self.completed, self.total)
        for features, logits in outputs:
            yield features, logits
            self.completed += len(logits)
            report_progress(self.description, self.completed, self.total)


def predict(method: NetworkMethod, network: Network, images: Images, info: DatasetInfo) -> Outputs:
    chunks = images.split(evaluation_batch(info))
    features, logits = zip(*output_chunks(method, network, chunks, info), strict=True)
    return torch.cat(features), torch.cat(logits)


def predict_splits(
    trained: TrainedNetwork, splits: Mapping[str, tuple[Split, DatasetInfo]]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the logits (N, C) and labels (N,) of each split."""
    predictions = {}
    for name, outputs in pass_splits(trained, splits):
        logits = [chunk for _, chunk in outputs]
        predictions[name] = torch.cat(logits), splits[name][0].labels
    return predictions


def pass_splits(
    trained: TrainedNetwork, splits: Mapping[str, tuple[Split, DatasetInfo]]
) -> Iterator[tuple[str, Iterator[Outputs]]]:
    """Yield the name of each split and its outputs, chunk by chunk, whose images are counted."""
    counter = ImageCounter(sum(len(split) for split, _ in splits.values()))
    for name, (split, info) in splits.items():
        chunks = split.images.split(evaluation_batch(info))
        yield name, counter.count(output_chunks(trained.method, trained.network, chunks, info))


def evaluation_batch(info: DatasetInfo) -> int:
    if info.size <= LARGEST_OF_FULL_BATCH:
        return EVALUATION_BATCH
    return max(8, EVALUATION_BATCH * LARGEST_OF_FULL_BATCH**2 // info.size**2)


def output_chunks(
    method: NetworkMethod,
    network: Network,
    chunks: Iterable[Tensor],
    info: DatasetInfo,
    bn_mode: str = "eval",
) -> Iterator[Outputs]:
    """Yield features and logits of raw images, chunk by chunk.

    ``bn_mode`` = ``train`` normalises by the statistics of each chunk and updates the running ones,
    as TST's code does, so that one chunk follows the other.
    """
    network.eval()
    method.eval()
    if bn_mode == "train":
        for module in network.modules():
            if isinstance(module, BATCH_NORMS):
                module.train()

    part_size = evaluation_batch(info)
    if bn_mode == "eval" and next(network.parameters()).device.type == "cpu":
        # The memory of few images is used again; that of many is mapped anew in each layer.
        part_size = max(4, 32**3 // info.size**2)

    @torch.no_grad()  # here, since threads do not inherit it
    def evaluate(images: Tensor) -> Outputs:
        outputs = [method(network, normalise(part, info)) for part in images.split(part_size)]
        features = torch.cat([output.features for output in outputs])
        return features, torch.cat([output.logits for output in outputs])

    if bn_mode == "eval" and can_share(network, method):
        yield from map_at_once(evaluate, chunks)
    else:
        yield from map(evaluate, chunks)


def can_share(network: Network, method: NetworkMethod) -> bool:
    """Return whether threads may evaluate a network at once: on a CPU, by code of libraries."""
    # A module of a user, or a hook, may keep a part of a forward pass for a later part.
    if next(network.parameters()).device.type != "cpu":
        return False
    for module in [*network.modules(), *method.modules()]:
        if type(module).__module__.partition(".")[0] not in STATELESS:
            return False
        if module._forward_hooks or module._forward_pre_hooks:
            return False
    return True


@torch.no_grad()
def predict_module(module: nn.Module, samples: Any) -> Tensor:
    """Return logits (N, C), or scores (N,), of a user's module, in evaluation mode, on its device.

    Raises:
        ValueError: the module returns something else.
    """
    weight = next(module.parameters(), torch.empty(0))
    inputs = samples
    if not isinstance(samples, Tensor):
        # A copy where torch could not write to it, or expects another order in memory.
        array = np.require(to_array(samples, "X"), requirements=["C", "W"])
        inputs = torch.from_numpy(array)
        if inputs.is_floating_point():
            inputs = inputs.to(weight.dtype)  # arrays are float64, and modules hardly ever are
    with evaluating(module):
        batches = (batch.to(weight.device) for batch in inputs.split(EVALUATION_BATCH))
        return torch.cat([_output(module, batch) for batch in batches])


def _output(module: nn.Module, samples: Tensor) -> Tensor:
    logits = module(samples)
    if not isinstance(logits, Tensor) or logits.ndim > 2 or logits.shape[:1] != (len(samples),):
        raise ValueError(
            f"the module must return a tensor of logits ({len(samples)}, C) for {len(samples)} "
            f"samples, got {getattr(logits, 'shape', type(logits))}; wrap it in a module that does"
        )
    return logits
