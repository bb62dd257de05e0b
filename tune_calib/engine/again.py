"""A finished trial once more: its classifier applied to other images than its trial saw.

A network is read from the store; a head, which is not kept, is trained again on the feature bank,
which gives the same numbers.
"""

from functools import cached_property

import torch
from torch import Tensor

from tune_calib.data.base import DatasetInfo, Split, info_of
from tune_calib.data.splits import Development
from tune_calib.engine.artifacts import TrainedNetwork, ensure_bank, load_network
from tune_calib.engine.bank import BankKey, FeatureSplit, bank_key, train_outputs
from tune_calib.engine.evaluate import Evaluation, SplitLogits, evaluate_one
from tune_calib.engine.network import predict
from tune_calib.engine.population import PopulationTrainer
from tune_calib.engine.store import Store
from tune_calib.spec import TrialSpec


class FinishedTrial:
    """The classifier of a finished trial.

    Args:
        spec: of the trial.
        store: holds its network.
        development: train, select and calib, on the device.
        test: the test split, on the device.

    Raises:
        DamagedFileError: the store does not hold the network, or not whole.
    """

    def __init__(
        self, spec: TrialSpec, store: Store, development: Development, test: Split
    ) -> None:
        self.spec, self.development, self.test = spec, development, test
        device = test.images.device
        self.info: DatasetInfo = info_of(spec.data)
        self.trained: TrainedNetwork = load_network(spec, store, device)
        self.trainer: PopulationTrainer | None = None
        if spec.head is not None:
            key = bank_key(spec, spec.head)
            bank = ensure_bank(spec, key, store, lambda: (development, test), device)
            # The store keeps the statistics of training, but select, calib and test in the bank
            # were predicted with those that the views of train had moved.
            if key.bn_mode == "train":
                self._drift(key)
            self.trainer = PopulationTrainer([spec.head], bank, spec.network.seed, device)
            for _ in self.trainer:
                pass

    def _drift(self, key: BankKey) -> None:
        """Move the running statistics of the network as the making of the bank moved them."""
        method, network = self.trained.method, self.trained.network
        for outputs in train_outputs(key, method, network, self.info, self.development.train):
            for _ in outputs:
                pass

    @cached_property
    def _known(self) -> dict[str, SplitLogits]:
        """What the post-hoc transform is fitted on, and ``select``."""
        known = {"select": self.development.select, "calib": self.development.calib}
        return {name: self._logits(split, self.info) for name, split in known.items()}

    def logits(self, split: Split) -> SplitLogits:
        """Logits of test images, before the post-hoc transform."""
        return self._logits(split, self.info.of_test())

    def _logits(self, split: Split, info: DatasetInfo) -> SplitLogits:
        method, network = self.trained.method, self.trained.network
        features, logits = predict(method, network, split, info)
        if self.trainer is None:
            return SplitLogits(logits.unsqueeze(0), split.labels)
        told = FeatureSplit(features, logits, split.labels)
        return SplitLogits(self.trainer.predict(told), split.labels)

    def evaluate(self, split: Split) -> Evaluation | None:
        """Metrics of some images as ``test/<name>``; None if a logit is not finite."""
        return self.judge(self.logits(split))

    def judge(self, logits: SplitLogits) -> Evaluation | None:
        """As ``evaluate``, of images whose ``logits`` are known."""
        return evaluate_one({**self._known, "test": logits}, self.spec.posthoc)


def spread_out(samples: int, most: int) -> Tensor:
    """Places of at most so many samples of a split, at equal distances in it."""
    count = min(most, samples)
    return torch.linspace(0, samples - 1, count).round().long()
