"""Published rules for splitting a data set, by the name in `data.split`.

Each rule has its own generator. The global generators of numpy, torch and Python are not touched.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.errors import UserError
from tune_calib.spec.datasets import GENERAL_RULES


@dataclass(frozen=True, eq=False)
class Cut:
    """Positions of the images of each split of a trial in the published parts."""

    train: Tensor  # positions in the training part, (N,) int64
    select: Tensor
    calib: Tensor
    of_test: bool = False  # whether ``select`` and ``calib`` are positions in the test part
    test: Tensor | None = None  # positions in the test part, (N,) int64; None means all of it


def halved(train: Tensor, validation: Tensor, **others: Any) -> Cut:
    """Return a cut whose ``select`` is the first half of the validation images."""
    half = len(validation) // 2
    return Cut(train, validation[:half], validation[half:], **others)


Rule = Callable[[Tensor, Tensor], Cut]
"""Takes the labels of the training and of the test part, each (N,) int64."""


def mukhoti(samples: int) -> tuple[Tensor, Tensor]:
    """Return int64 positions (N - N // 10,) of train and (N // 10,) of validation.

    This is the rule of Mukhoti et al. (NeurIPS 2020), MbLS, FeDLaS and AdaFocal:
    ``np.random.seed(1); np.random.shuffle(indices)``, with the first tenth for validation.
    """
    indices = np.arange(samples)
    np.random.RandomState(1).shuffle(indices)
    order = torch.from_numpy(indices)
    return order[samples // 10 :], order[: samples // 10]


def tenth(train: Tensor, _: Tensor) -> Cut:
    return halved(*mukhoti(len(train)))


def tst(share: float, train: Tensor, _: Tensor) -> Cut:
    """Hold out a share of train as TST and BalCAL: ``random_split`` with torch's seed 1."""
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(1))
    count = len(train) - round(share * len(train))
    return halved(order[:count], order[count:])


def plp(train: Tensor, _: Tensor) -> Cut:
    """Hold out the last tenth as PLP and MIT: ``RandomState(101).permutation``."""
    order = torch.from_numpy(np.random.RandomState(101).permutation(len(train)))
    count = len(train) - len(train) // 10
    return halved(order[:count], order[count:])


def mdca(train: Tensor, _: Tensor) -> Cut:
    """Hold out the first tenth as MDCA: ``random.seed(100); random.shuffle``."""
    order, count = list(range(len(train))), len(train) // 10
    random.Random(100).shuffle(order)
    return halved(torch.tensor(order[count:]), torch.tensor(order[:count]))


def tenth_of_each_class(train: Tensor, _: Tensor) -> Cut:
    """Hold out the last tenth of each class, shuffled, as MbLS, ACLS and FeDLaS on Tiny-ImageNet.

    One stream of numpy's seed 1 shuffles the classes one after the other. Held-out images alternate
    between the classes, so that both halves contain all classes.
    """
    chance = np.random.RandomState(1)
    training, held_out, turns = [], [], []
    for label in range(int(train.max()) + 1):
        places = np.flatnonzero(train.numpy() == label)
        chance.shuffle(places)
        count = len(places) // 10
        training.append(places[: len(places) - count])
        held_out.append(places[len(places) - count :])
        turns.append(np.arange(count))
    in_turns = np.argsort(np.concatenate(turns), kind="stable")
    validation = np.concatenate(held_out)[in_turns]
    return halved(torch.from_numpy(np.concatenate(training)), torch.from_numpy(validation))


def whole(train: Tensor, test: Tensor) -> Cut:
    """Train on the whole training part (CRL; published weights), and split the test part in three.

    The test part is shuffled with numpy's seed 1. Its first quarter is ``select``, the second
    ``calib``, and the rest ``test``.
    """
    order = _shuffled(test)
    held_out = len(test) // 2
    return halved(torch.arange(len(train)), order[:held_out], of_test=True, test=order[held_out:])


def val_is_test(train: Tensor, test: Tensor) -> Cut:
    """Validate on the test part itself, as several programs do, so that selection uses test images.

    The halves are drawn with numpy's seed 1. This rule is for reproduction only.
    """
    return halved(torch.arange(len(train)), _shuffled(test), of_test=True)


def held_out_of_test(shares: Sequence[float], train: Tensor, test: Tensor) -> Cut:
    """Train on the whole training part, and split the test part into select, calib and test.

    This suits networks that were trained on the whole training part. The images of each class are
    permuted with torch's seed 0 and divided by ``shares`` (of the three splits, summing to one)
    with largest remainders, so that each split has images of every class. Positions are sorted.
    """
    # The defaults of MaC-Cal were chosen on the first half of this permutation for CIFAR-10
    # (tests/benchmarks/mac_cal_defaults.py), so `test` should contain as few of those images as
    # possible.
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    parts: list[list[NDArray[np.int64]]] = [[], [], []]
    for label in test.unique():
        places = order[test[order] == label].numpy()
        counts = largest_remainders(len(places) * np.array(shares), len(places))
        if min(counts) == 0:
            raise UserError(
                f"data.holdout=test: class {label} has {len(places)} test images, too few for "
                f"shares of {', '.join(f'{share:g}' for share in shares)}; use other "
                "data.holdout_shares, or data with more images"
            )
        for part, cut in zip(parts, np.split(places, np.cumsum(counts)[:-1]), strict=True):
            part.append(cut)
    select, calib, tested = (torch.from_numpy(np.sort(np.concatenate(part))) for part in parts)
    return Cut(torch.arange(len(train)), select, calib, of_test=True, test=tested)


def largest_remainders(exact: NDArray[np.floating[Any]], total: int) -> NDArray[np.int64]:
    """Return integers that sum to ``total``, each within one of its ``exact`` share."""
    # The margin prevents rounding errors from turning 25 into 24.
    counts: NDArray[np.int64] = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: max(0, total - int(counts.sum()))]] += 1
    return counts


def _shuffled(labels: Tensor) -> Tensor:
    return torch.from_numpy(np.random.RandomState(1).permutation(len(labels)))


# Rules for all data sets; specific rules are in the record of a data set.
GENERAL: dict[str, Rule] = dict(zip(GENERAL_RULES, (whole, val_is_test), strict=True))

CIFAR10: dict[str, Rule] = {"tst": partial(tst, 0.2), "plp": plp, "mdca": mdca}
CIFAR100: dict[str, Rule] = {"tst": partial(tst, 0.05), "plp": plp, "mdca": mdca}
