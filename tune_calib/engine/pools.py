"""Pools: the average of the predictions of several networks, stored as a bank without features."""

import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tune_calib.engine.bank import BankKey, DevelopmentBank, FeatureSplit, write_split
from tune_calib.engine.evaluate import SplitLogits, fit_transform
from tune_calib.files.paths import AnyPath
from tune_calib.files.store import write_folder
from tune_calib.methods._base import PostHocMethod
from tune_calib.spec.names import REPORTED
from tune_calib.spec.slots.network import Pool


def average(members: Sequence[Tensor], of: str = "probabilities") -> Tensor:
    """Average the predictions of members, with equal weights.

    Args:
        members: logits (..., N, C) of each member, unnormalised.
        of: ``probabilities``, or ``logits``, whose softmax is the normalised geometric mean of the
            probabilities.

    Returns:
        Logits (..., N, C), float64: log-probabilities, or the mean of the logits.
    """
    logits = torch.stack(list(members)).double()
    if of == "logits":
        return logits.mean(0)
    return logits.log_softmax(-1).logsumexp(0) - torch.tensor(float(len(logits))).double().log()


def measure_diversity(members: Sequence[Tensor], of: str = "probabilities") -> dict[str, float]:
    """Measure how much the predictions of members differ, given logits (N, C) of each.

    Returns:
        disagreement: share of samples for which two members predict different classes, averaged
            over the pairs of members.
        ambiguity: mean squared distance, summed over the classes, of the members' probabilities
            from their mean: the mean Brier score of the members is that of the pool plus the
            ambiguity (Krogh and Vedelsby, NeurIPS 1994). Not of a mean of logits.
    """
    probs = torch.stack(list(members)).double().softmax(-1)
    classes = probs.argmax(-1)
    pairs = [(a != b).double().mean() for a, b in combinations(classes, 2)]
    values = {"disagreement": float(torch.stack(pairs).mean())}
    if of == "probabilities":
        values["ambiguity"] = float((probs - probs.mean(0)).square().sum(-1).mean())
    return values


class PooledMembers:
    """The members of a pool, each with the transform that is fitted to its ``calib``."""

    def __init__(self, pool: Pool, banks: Sequence[DevelopmentBank]) -> None:
        self.pool, self.banks = pool, banks
        self.transforms: list[PostHocMethod | None] = [None] * len(banks)
        if pool.posthoc is not None:
            for place, bank in enumerate(banks):
                calib = bank.calib()
                split = SplitLogits(calib.logits[None], calib.labels)
                self.transforms[place] = fit_transform(pool.posthoc, split, checks_harm=False)

    def calibrate(self, splits: Sequence[FeatureSplit]) -> list[Tensor]:
        """Return the logits (N, C) of each member on a split, float64."""
        calibrated = []
        for split, transform in zip(splits, self.transforms, strict=True):
            logits = split.logits[None].double()
            if transform is not None:
                logits = transform.transform(logits)
            calibrated.append(logits[0])
        return calibrated

    def write(self, path: Path, splits: Sequence[FeatureSplit]) -> list[Tensor]:
        """Write the average on a split; return the logits of the members."""
        members, first = self.calibrate(splits), splits[0]
        logits = average(members, self.pool.average)
        outputs = [(logits[:, :0], logits)]
        write_split(path, outputs, first.labels, first.groups, first.image_ids)
        return members


def build_pool_bank(
    folder: AnyPath, key: BankKey, pool: Pool, banks: Sequence[DevelopmentBank]
) -> None:
    """Write the bank of a pool, given those of its members; it has no training split."""
    first, diversity = banks[0], dict[str, float]()  # which rows of curves record
    manifest: dict[str, Any] = {
        "key": key.model_dump(), "train_views": 0, "has_test": first.has_test, "epoch": 0,
        "history": [diversity], "accuracy": {}, "regime": {},
    }  # fmt: skip
    if "imported" in first.manifest:
        manifest["imported"] = first.manifest["imported"]

    def fill(path: Path) -> None:
        started, members = time.monotonic(), PooledMembers(pool, banks)
        of_members = [bank.evaluated() for bank in banks]
        for name in of_members[0]:
            splits = [of_member[name] for of_member in of_members]
            logits = members.write(path / f"{name}.arrow", splits)
            if name in REPORTED:
                for quantity, value in measure_diversity(logits, pool.average).items():
                    diversity[f"{name}/{quantity}"] = value
        manifest["made_s"] = time.monotonic() - started

    write_folder(folder, fill, manifest)
