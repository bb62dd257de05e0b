"""Draws of splits by a seed (`data.split_seed`), and subsets of calib (`data.calib_size`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.data.rules import Cut
from tune_calib.determinism import child_seed
from tune_calib.errors import UserError
from tune_calib.spec.slots.data import DataSlot

Places = NDArray[np.int64]


def draw_cut(cut: Cut, labels: Tensor, seed: int) -> Cut:
    """Draw the splits of a cut anew, stratified and with the same sizes.

    ``labels`` (N,) are those of the published part that contains ``select``. If that is the test
    part, only ``select`` and ``calib`` are drawn, from their own samples.
    """
    parts = [cut.select, cut.calib]
    if not cut.of_test:
        parts.append(cut.train)
    pool = torch.cat(parts)
    order = _stratified_order(labels[pool].numpy(), _random(seed, "split"))
    ends = np.cumsum([len(part) for part in parts])[:-1]
    select, calib, *train = (_sorted(pool, places) for places in np.split(order, ends))
    return replace(cut, select=select, calib=calib, train=train[0] if train else cut.train)


def unite(parts: Sequence[Tensor], image_ids: Tensor | None) -> list[Tensor]:
    """Move each image into the part of the first image that equals it.

    ``parts`` are positions in ``image_ids`` (N,), which is None if all images differ.
    """
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
    """Return a cut without equal images in two splits, given those of the part it divides."""
    parts = {"select": cut.select, "calib": cut.calib}
    if not cut.of_test:
        parts["train"] = cut.train
    elif cut.test is not None:
        parts["test"] = cut.test
    united = unite(list(parts.values()), image_ids)
    changed: dict[str, Any] = dict(zip(parts, united, strict=True))
    return replace(cut, **changed)


def draw_held_out(
    data: DataSlot,
    is_redrawn: bool,
    select: Tensor,
    calib: Tensor,
    groups: Tensor | None = None,
    image_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the positions of a trial's ``select`` and ``calib`` in both, one after the other.

    ``select`` (N,) and ``calib`` (M,) are the labels of the stored splits. They are divided anew if
    the trial ``is_redrawn``, and its calib is reduced to ``data.calib_size``. The samples of a
    group, given by equal ``groups`` (N + M,), are never divided, and equal images, given by
    ``image_ids`` (N + M,), are in one split.
    """
    places = torch.arange(len(select) + len(calib))
    first, second = places[: len(select)], places[len(select) :]
    labels = torch.cat([select, calib]).cpu()
    if is_redrawn:
        assert data.split_seed is not None
        chance = _random(data.split_seed, "split")
        first, second = unite(divide(labels, len(select), chance, groups), image_ids)
    if data.calib_size is None:
        return first, second
    if data.calib_size > len(second):
        raise UserError(
            f"data.calib_size is {data.calib_size}, but calib has only {len(second)} samples"
        )
    chance = _random(data.split_seed or 0, "calib_size")
    if groups is None:
        order = _stratified_order(labels[second].numpy(), chance)
    else:
        order = _grouped_order(groups[second].numpy(), chance)
    return first, _sorted(second, order[: data.calib_size])


def divide(
    labels: Tensor, size: int, chance: np.random.RandomState, groups: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Divide samples (N,) in two, stratified, with ``size`` of them in the first part.

    With ``groups`` (N,), groups are drawn instead, until the first part is as close to that size as
    they allow; it is then not stratified.
    """
    places = torch.arange(len(labels))
    if groups is None:
        order = _stratified_order(labels.numpy(), chance)
    else:
        order = _grouped_order(groups.numpy(), chance)
        ends = np.flatnonzero(np.diff(groups.numpy()[order])) + 1
        size = int(ends[np.abs(ends - size).argmin()])
    return _sorted(places, order[:size]), _sorted(places, order[size:])


def _random(seed: int, purpose: str) -> np.random.RandomState:
    # RandomState, because numpy guarantees that its streams never change.
    return np.random.RandomState(child_seed(seed, purpose) % 2**32)


def _stratified_order(labels: NDArray[np.int64], chance: np.random.RandomState) -> Places:
    """Order samples at random, so that the classes are spread evenly over the order.

    The samples of a class are shuffled and follow at equal distances after a random start. Any
    samples in a row then have each class with its share, to within a sample or two.
    """
    shuffled = chance.permutation(len(labels))
    shuffled = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    ranks = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = chance.random_sample(len(counts))
    distances = (ranks + np.repeat(starts, counts)) / np.repeat(counts, counts)
    order: Places = shuffled[np.argsort(distances, kind="stable")]
    return order


def _grouped_order(groups: NDArray[np.int64], chance: np.random.RandomState) -> Places:
    names, numbers = np.unique(groups, return_inverse=True)
    ranks = chance.permutation(len(names))[numbers]
    order: Places = np.argsort(ranks, kind="stable")
    return order


def _sorted(positions: Tensor, places: Places) -> Tensor:
    return positions[torch.from_numpy(np.sort(places))].sort().values
