"""Published rules for splitting a data set, by the name in `data.split`, and draws by a seed.

Each rule has its own generator. The global generators of numpy, torch and Python are not touched.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.determinism import child_seed
from tune_calib.errors import UserError
from tune_calib.spec.datasets import GENERAL_RULES
from tune_calib.spec.slots.data import DataSlot

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cut:
    """Positions of the images of each split of a trial in the published parts."""

    train: Tensor  # positions in the training part, (N,) int64
    select: Tensor
    calib: Tensor
    of_test: bool = False  # whether ``select`` and ``calib`` are positions in the test part
    test: Tensor | None = None  # positions in the test part, (N,) int64; None means all of it


def halved(train: Tensor, validation: Tensor, **others: Any) -> Cut:
    half = len(validation) // 2
    return Cut(train, validation[:half], validation[half:], **others)


Rule = Callable[[Tensor, Tensor], Cut]
"""Takes the labels of the training and of the test part, each (N,) int64."""


def mukhoti(samples: int) -> tuple[Tensor, Tensor]:
    """Hold out the first tenth as Mukhoti et al. (NeurIPS 2020), MbLS, FeDLaS and AdaFocal."""
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

    Held-out images alternate between the classes, so that both halves contain all classes.
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
    validation = np.concatenate(held_out)[np.argsort(np.concatenate(turns), kind="stable")]
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

    The images of each class are permuted and divided by ``shares`` of the three splits with largest
    remainders, so that each split has images of every class.
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


def draw_cut(cut: Cut, labels: Tensor, seed: int) -> Cut:
    """Draw the splits of a cut anew, stratified by ``labels`` (N,) and with the same sizes.

    In the test part, only ``select`` and ``calib`` are drawn, from their own samples.
    """
    parts = [cut.select, cut.calib]
    if not cut.of_test:
        parts.append(cut.train)
    pool = torch.cat(parts)
    order = _stratified_order(labels[pool].numpy(), random_of(seed, "split"))
    ends = np.cumsum([len(part) for part in parts])[:-1]
    select, calib, *train = (_sorted(pool, places) for places in np.split(order, ends))
    return replace(cut, select=select, calib=calib, train=train[0] if train else cut.train)


def unite(parts: Sequence[Tensor], image_ids: Tensor | None) -> list[Tensor]:
    """Move each image into the part of the first image with the same of ``image_ids`` (N,)."""
    if image_ids is None:
        return list(parts)
    pool = torch.cat(list(parts))
    numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.argsort(pool.numpy(), kind="stable")
    ids = image_ids[pool].numpy()[order]
    _, firsts, inverse = np.unique(ids, return_index=True, return_inverse=True)
    numbers[order] = numbers[order][firsts][inverse]
    return [pool[torch.from_numpy(numbers == number)] for number in range(len(parts))]


def unite_cut(cut: Cut, image_ids: Tensor | None) -> Cut:
    parts = {"select": cut.select, "calib": cut.calib}
    if not cut.of_test:
        parts["train"] = cut.train
    elif cut.test is not None:
        parts["test"] = cut.test
    united: Any = zip(parts, unite(list(parts.values()), image_ids), strict=True)
    return replace(cut, **dict(united))


def draw_held_out(
    data: DataSlot,
    is_redrawn: bool,
    select: Tensor,
    calib: Tensor,
    groups: Tensor | None = None,
    image_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the positions of a trial's ``select`` and ``calib`` in both, one after the other.

    ``select`` (N,) and ``calib`` (M,) are the labels of the stored splits. Samples of equal
    ``groups`` (N + M,) are never divided, nor are those of equal ``image_ids`` (N + M,).
    """
    places = torch.arange(len(select) + len(calib))
    first, second = places[: len(select)], places[len(select) :]
    labels = torch.cat([select, calib]).cpu()
    if is_redrawn:
        assert data.split_seed is not None
        chance = random_of(data.split_seed, "split")
        first, second = unite(divide(labels, len(select), chance, groups), image_ids)
    if data.calib_size is None:
        return first, second
    if data.calib_size > len(second):
        raise UserError(
            f"data.calib_size is {data.calib_size}, but calib has only {len(second)} samples"
        )
    chance = random_of(data.split_seed or 0, "calib_size")
    order = _order(labels[second], chance, None if groups is None else groups[second])
    return first, _sorted(second, order[: data.calib_size])


def divide(
    labels: Tensor, size: int, chance: np.random.RandomState, groups: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Divide samples (N,) in two, stratified, with ``size`` of them in the first part.

    With ``groups`` (N,), whole groups are drawn instead, to as close to that size as they allow.
    """
    places, order = torch.arange(len(labels)), _order(labels, chance, groups)
    if groups is not None:
        ends = np.flatnonzero(np.diff(groups.numpy()[order])) + 1
        size = int(ends[np.abs(ends - size).argmin()])
    return _sorted(places, order[:size]), _sorted(places, order[size:])


def random_of(seed: int, purpose: str) -> np.random.RandomState:
    # RandomState, because numpy guarantees that its streams never change.
    return np.random.RandomState(child_seed(seed, purpose) % 2**32)


def _stratified_order(labels: NDArray[np.int64], chance: np.random.RandomState) -> Places:
    """Order samples at random, those of each class at equal distances after a random start."""
    shuffled = chance.permutation(len(labels))
    shuffled = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    ranks = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = chance.random_sample(len(counts))
    distances = (ranks + np.repeat(starts, counts)) / np.repeat(counts, counts)
    order: Places = shuffled[np.argsort(distances, kind="stable")]
    return order


def _order(labels: Tensor, chance: np.random.RandomState, groups: Tensor | None) -> Places:
    if groups is None:
        return _stratified_order(labels.numpy(), chance)
    names, numbers = np.unique(groups.numpy(), return_inverse=True)
    return np.argsort(chance.permutation(len(names))[numbers], kind="stable")


def _sorted(positions: Tensor, places: Places) -> Tensor:
    return positions[torch.from_numpy(np.sort(places))].sort().values


# Rules for all data sets; specific rules are in the record of a data set.
GENERAL: dict[str, Rule] = dict(zip(GENERAL_RULES, (whole, val_is_test), strict=True))

CIFAR10: dict[str, Rule] = {"tst": partial(tst, 0.2), "plp": plp, "mdca": mdca}
CIFAR100: dict[str, Rule] = {"tst": partial(tst, 0.05), "plp": plp, "mdca": mdca}
