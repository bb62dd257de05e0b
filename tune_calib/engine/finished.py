"""A finished trial once more: its classifier applied to other images than its trial saw.

Network and classifier are read from the store; a classifier that is not kept is made again.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.artifacts import TrainedNetwork, load_network
from tune_calib.engine.bank import FeatureSplit, bank_key, train_outputs
from tune_calib.engine.classifier import load_classifier
from tune_calib.engine.evaluate import Evaluation, SplitLogits, evaluate_one
from tune_calib.engine.network import predict
from tune_calib.engine.store import Store
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.spec.trial import TrialSpec


class FinishedTrial:
    """The classifier of a finished trial, on data that are on its device.

    A ``DamagedFileError`` is raised if the store does not hold the network, or not whole.
    """

    def __init__(
        self, spec: TrialSpec, store: Store, development: Development, device: torch.device
    ) -> None:
        self.spec, self.development = spec, development
        self.info: DatasetInfo = spec.data.info
        self.trained = network_behind(spec, store, lambda: development, device)
        self.classifier = load_classifier(spec, store, lambda: development, device)

    @cached_property
    def _known(self) -> dict[str, SplitLogits]:
        """Return what the post-hoc transform is fitted on, and ``select``."""
        known = {"select": self.development.select, "calib": self.development.calib}
        return {name: self._logits(split, self.info) for name, split in known.items()}

    def logits(self, split: Split) -> SplitLogits:
        """Return logits of test images, before the post-hoc transform."""
        return self._logits(split, self.info.of_test())

    def _logits(self, split: Split, info: DatasetInfo) -> SplitLogits:
        method, network = self.trained.method, self.trained.network
        features, logits = predict(method, network, split, info)
        told = FeatureSplit(features, logits, split.labels)
        return SplitLogits(self.classifier.uncalibrated(told), split.labels)

    def judge(self, logits: SplitLogits) -> Evaluation | None:
        """Return metrics of ``logits``, as ``test/<name>``; None if one is not finite."""
        return evaluate_one({**self._known, "test": logits}, self.spec.posthoc)


def network_behind(
    spec: TrialSpec, store: Store, development: Callable[[], Development], device: torch.device
) -> TrainedNetwork:
    """Return the network whose features the head of a trial was judged on, as ``load_network``."""
    trained = load_network(spec, store, device)
    key = bank_key(spec, spec.head)
    # The store keeps the statistics of training, but select, calib and test in the bank were
    # predicted with those that the views of train had moved.
    if key.bn_mode == "train":
        train = development().train.to(device)
        for outputs in train_outputs(key, trained.method, trained.network, spec.data.info, train):
            for _ in outputs:
                pass
    return trained


def spread_out(samples: int, most: int) -> Tensor:
    """Return positions of at most so many samples of a split, at equal distances in it."""
    count = min(most, samples)
    return torch.linspace(0, samples - 1, count).round().long()
