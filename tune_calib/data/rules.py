"""Published rules that cut a data set into splits, by the name of `data.split`.

Each draws from a generator of its own; the global ones of numpy, torch and Python stay as they are.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

DEFAULT = "default"


@dataclass(frozen=True, eq=False)
class Cut:
    """Which images of the published parts make the splits of a trial.

    Attributes:
        train: positions in the training part, (N,) int64.
        validation: positions of ``select`` (the first half) and ``calib``, (N,) int64.
        of_test: whether ``validation`` counts in the test part.
        test: positions in the test part, (N,) int64; none is all of it.
    """

    train: Tensor
    validation: Tensor
    of_test: bool = False
    test: Tensor | None = None


Rule = Callable[[Tensor, Tensor], Cut]
"""From the labels of the training part and of the test part, (N,) int64 each."""


def mukhoti(samples: int) -> tuple[Tensor, Tensor]:
    """Positions of the train and validation splits, by the rule of Mukhoti et al., NeurIPS 2020.

    ``np.random.seed(1); np.random.shuffle(indices)``: the first tenth is for validation. (The code
    of MbLS, FeDLaS and AdaFocal does the same.) The first half of the validation list becomes
    ``select``, the second ``calib``.

    Args:
        samples: size of the training part; 50,000 if it is that of CIFAR, whole.

    Returns:
        (N - N // 10,) and (N // 10,), int64.
    """
    indices = np.arange(samples)
    np.random.RandomState(1).shuffle(indices)
    return _first_out(torch.from_numpy(indices), samples // 10)


def tenth(train: Tensor, test: Tensor) -> Cut:
    """As ``mukhoti``."""
    del test
    return Cut(*mukhoti(len(train)))


def tst(share: float, train: Tensor, test: Tensor) -> Cut:
    """TST and BalCAL: ``random_split`` under a torch generator of seed 1, whatever the run's.

    Args:
        share: of the training part that is for validation.
        train: labels of the training part.
        test: not read.
    """
    del test
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(1))
    kept = len(train) - round(share * len(train))
    return Cut(order[:kept], order[kept:])


def plp(train: Tensor, test: Tensor) -> Cut:
    """PLP and MIT: ``RandomState(101).permutation``; the last tenth is for validation."""
    del test
    order = torch.from_numpy(np.random.RandomState(101).permutation(len(train)))
    kept = len(train) - len(train) // 10
    return Cut(order[:kept], order[kept:])


def mdca(train: Tensor, test: Tensor) -> Cut:
    """MDCA: ``random.seed(100); random.shuffle``; the first tenth is for validation."""
    del test
    order = list(range(len(train)))
    random.Random(100).shuffle(order)
    return Cut(*_first_out(torch.tensor(order), len(train) // 10))


def tenth_of_each_class(train: Tensor, test: Tensor) -> Cut:
    """MbLS, ACLS and FeDLaS on Tiny-ImageNet: of each class, shuffled, the last tenth (50 of 500).

    One stream of numpy's seed 1 shuffles the classes one after the other. The images that are held
    out stand in turns, one of each class, so that both halves of them hold all classes.
    """
    del test
    chance = np.random.RandomState(1)
    kept, held_out, turns = [], [], []
    for label in range(int(train.max()) + 1):
        places = np.flatnonzero(train.numpy() == label)
        chance.shuffle(places)
        count = len(places) // 10
        kept.append(places[: len(places) - count])
        held_out.append(places[len(places) - count :])
        turns.append(np.arange(count))
    in_turns = np.argsort(np.concatenate(turns), kind="stable")
    validation = np.concatenate(held_out)[in_turns]
    return Cut(torch.from_numpy(np.concatenate(kept)), torch.from_numpy(validation))


def whole(train: Tensor, test: Tensor) -> Cut:
    """All of the training part trains (CRL; published weights); the test part is cut in three.

    Shuffled by numpy's seed 1, its first quarter is ``select``, the second ``calib``, and the rest
    ``test``.
    """
    order = _shuffled(test)
    held_out = len(test) // 2
    return Cut(torch.arange(len(train)), order[:held_out], of_test=True, test=order[held_out:])


def val_is_test(train: Tensor, test: Tensor) -> Cut:
    """Validation is the test part itself, as in several programs: what they chose saw test.

    The halves are drawn by numpy's seed 1. For reproduction alone.
    """
    return Cut(torch.arange(len(train)), _shuffled(test), of_test=True)


def _shuffled(labels: Tensor) -> Tensor:
    return torch.from_numpy(np.random.RandomState(1).permutation(len(labels)))


def _first_out(order: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return order[count:], order[:count]


# Every data set has these; its own stand in its record.
GENERAL: dict[str, Rule] = {"whole": whole, "val_is_test": val_is_test}

CIFAR10: dict[str, Rule] = {"tst": partial(tst, 0.2), "plp": plp, "mdca": mdca}
CIFAR100: dict[str, Rule] = {"tst": partial(tst, 0.05), "plp": plp, "mdca": mdca}
