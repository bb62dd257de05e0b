"""The splits of a trial: train, select and calib together, and the test split separately.

Training and selection get a ``Development``, which has no test split. Changes by a data slot apply
to ``train`` only, in this order: ``train_fraction``, ``imbalance``, ``label_noise``. Their random
numbers are fixed and do not depend on the seed of a network.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tune_calib.data import rules
from tune_calib.data.base import Source, Split
from tune_calib.data.cache import find_equal_images, load_source, settled, summarise
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import hash_bytes, hash_text
from tune_calib.spec.datasets import HELD_OUT, DatasetInfo
from tune_calib.spec.slots.data import DataSlot

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Development:
    """The splits for training (train), selection (select) and post-hoc fits (calib)."""

    train: Split
    select: Split
    calib: Split
    digest: str = ""  # of all images and labels, also test, and of the rule for equal images
    remark: str = ""  # describes equal images, for plans

    def fingerprint(self) -> str:
        """Return a digest of labels, positions and first images, which distinguishes copies."""
        parts = []
        for split in (self.train, self.select, self.calib):
            # The first images suffice, since copies of a data set differ in the order of rows.
            for tensor in (split.labels, split.indices, split.images[:64]):
                parts.append(tensor.cpu().contiguous().numpy().tobytes())
            if split.image_ids is not None:
                parts.append(split.image_ids.numpy().tobytes())
        return hash_bytes(*parts)[:16]

    def to(self, device: torch.device | str) -> "Development":
        splits = (self.train.to(device), self.select.to(device), self.calib.to(device))
        return Development(*splits, self.digest, self.remark)


@dataclass(frozen=True)
class Sizes:
    train: int
    select: int
    calib: int
    test: int
    remark: str = ""  # as in ``Development``


def cut_parts(info: DatasetInfo, train: Tensor, test: Tensor) -> rules.Cut:
    if info.holdout_shares is not None:
        return rules.held_out_of_test(info.holdout_shares, train, test)
    rule: rules.Rule | None = {**rules.GENERAL, **info.rules}.get(info.rule)
    if rule is not None:
        return rule(train, test)
    assert info.split is not None
    return rules.halved(*info.split(len(train)))


def published_sizes(slot: DataSlot) -> Sizes:
    """Return the sizes of the splits from the published sizes, assuming balanced classes."""
    info = slot.info
    if info.published is None:
        raise UserError(
            f"{slot.dataset} has no published size, from which hours follow; omit `gpu_model`"
        )
    # Without the images of held-out classes.
    share = 1.0
    if info.relabel is not None:
        share = sum(label != HELD_OUT for label in info.relabel) / len(info.relabel)
    train, test = (torch.arange(round(share * count)) % info.classes for count in info.published)
    cut = cut_parts(info, train, test)
    counts = _counts(train[cut.train], info.classes)
    if slot.train_fraction < 1:
        counts = fraction_counts(counts, slot.train_fraction)
    if slot.imbalance > 1:
        counts = imbalance_counts(counts, slot.imbalance)
    tested = len(test) if cut.test is None else len(cut.test)
    return Sizes(int(counts.sum()), len(cut.select), len(cut.calib), tested)


def load_development(slot: DataSlot, root: Path | None, cache: Path | None = None) -> Development:
    """Load train, select and calib; ``cache`` is a folder for decoded images."""
    info: DatasetInfo = slot.info
    source, cut = _load_cut(slot, root, cache)
    part, held_out = "training", source.train
    if cut.of_test:
        part, held_out = "test", source.test
    if min(len(cut.train), len(cut.select), len(cut.calib)) == 0:
        raise DamagedFileError(
            f"{info.name}: {root} has too few different {part} images ({len(held_out)})"
        )
    train = _change(relabelled(source.train.take(cut.train), info), slot, info.classes)
    # Halves, so that the temperature is not fitted on the images on which the epoch and the
    # hyper-parameters were selected.
    select = relabelled(held_out.take(cut.select), info)
    calib = relabelled(held_out.take(cut.calib), info)
    if slot.calib_size is not None:
        _, places = rules.draw_held_out(slot, False, select.labels, calib.labels)
        calib = calib.take(places - len(select))
    train, select, calib = (settled(split, source) for split in (train, select, calib))
    digest = summarise(source).digest
    if held_out.image_ids is not None:
        # Otherwise, these rows could be mixed with those of splits that divided equal images.
        digest = hash_text(f"{digest} united")[:16]
    return Development(train, select, calib, digest, _describe_equal(source, held_out, part))


def _load_cut(slot: DataSlot, root: Path | None, cache: Path | None) -> tuple[Source, rules.Cut]:
    """Load a data set and divide it, with equal images in one split unless a draw is published."""
    source = load_source(slot.info, root, cache)
    if slot.info.general is not None or slot.plugin is not None:
        source = find_equal_images(source)
    cut = cut_parts(slot.info, source.train.labels, source.test.labels)
    divided = source.test if cut.of_test else source.train
    cut = rules.unite_cut(cut, divided.image_ids)
    if slot.split_seed is not None:
        cut = rules.draw_cut(cut, divided.labels, slot.split_seed)
        cut = rules.unite_cut(cut, divided.image_ids)
    return source, cut


def _describe_equal(source: Source, divided: Split, part: str) -> str:
    texts = []
    if divided.image_ids is not None:
        ids, labels = divided.image_ids.numpy(), divided.labels.numpy()
        _, firsts, inverse = np.unique(ids, return_index=True, return_inverse=True)
        repeats = len(labels) - len(firsts)
        text = (
            f"{repeats} of {len(labels)} {part} images repeat another one, whose split they are in"
        )
        if contradictions := int((labels != labels[firsts][inverse]).sum()):
            text += f", {contradictions} of them with another label"
        texts.append(text)
    if source.shared:
        texts.append(
            f"{source.shared} of {len(source.test)} test images are also training images, so "
            "results on them are too good"
        )
    return "; ".join(texts)


def load_test(slot: DataSlot, root: Path | None, cache: Path | None = None) -> Split:
    return relabelled(_tested(slot, root, cache), slot.info)


def load_held_out(slot: DataSlot, root: Path | None, cache: Path | None = None) -> Split:
    test = _tested(slot, root, cache)
    is_held_out = torch.tensor(slot.info.relabel or ())[test.labels] == HELD_OUT
    return test.take(is_held_out.nonzero().squeeze(1))


def _tested(slot: DataSlot, root: Path | None, cache: Path | None) -> Split:
    source, cut = _load_cut(slot, root, cache)
    test = source.test if cut.test is None else source.test.take(cut.test)
    return settled(test, source)


def relabelled(split: Split, info: DatasetInfo) -> Split:
    if info.relabel is None:
        return split
    labels = torch.tensor(info.relabel)[split.labels]
    if HELD_OUT not in info.relabel:
        return replace(split, labels=labels)
    positions = (labels != HELD_OUT).nonzero().squeeze(1)
    return replace(split.take(positions), labels=labels[positions])


def _change(train: Split, slot: DataSlot, classes: int) -> Split:
    if slot.train_fraction < 1:
        counts = fraction_counts(_counts(train.labels, classes), slot.train_fraction)
        train = _subset(train, counts, "train_fraction")
    if slot.imbalance > 1:
        counts = imbalance_counts(_counts(train.labels, classes), slot.imbalance)
        train = _subset(train, counts, "imbalance")
    if slot.label_noise > 0:
        train = add_label_noise(train, slot.label_noise, classes)
    empty = np.flatnonzero(_counts(train.labels, classes) == 0)
    if len(empty):
        raise UserError(
            f"data: class {int(empty[0])} of {slot.dataset} has no training samples left; increase "
            f"train_fraction ({slot.train_fraction:g}) or reduce imbalance ({slot.imbalance:g}) "
            f"or label_noise ({slot.label_noise:g})"
        )
    return train


def fraction_counts(counts: Counts, fraction: float) -> Counts:
    return rules.largest_remainders(counts * fraction, round(float(counts.sum()) * fraction))


def imbalance_counts(counts: Counts, imbalance: float) -> Counts:
    """Return the number of samples (C,) of each class in an exponential long tail.

    It is n_k = n_max * (1 / imbalance)^(k / (C - 1)), rounded down (Cui et al., CVPR 2019), where
    n_max is the largest size for which every class has enough samples.
    """
    exponents = np.arange(len(counts)) / max(1, len(counts) - 1)
    profile = np.power(1 / imbalance, exponents)
    # The margin prevents rounding errors from turning 45 into 44.
    tail: Counts = np.floor((counts / profile).min() * profile + 1e-6).astype(np.int64)
    return tail


def add_label_noise(train: Split, fraction: float, classes: int) -> Split:
    draw = rules.random_of(0, "label_noise")
    labels = train.labels.clone()
    chosen = torch.from_numpy(draw.permutation(len(train))[: round(fraction * len(train))])
    shift = torch.from_numpy(draw.randint(1, classes, size=len(chosen)))
    labels[chosen] = (labels[chosen] + shift) % classes
    return replace(train, labels=labels)


def _subset(train: Split, counts: Counts, purpose: str) -> Split:
    labels = train.labels.numpy()
    # Seed 0, independent of the network's seed, so that trials with several seeds are trained on
    # the same images.
    rank = rules.random_of(0, purpose).permutation(len(labels))
    shuffled = [rank[labels[rank] == label][:count] for label, count in enumerate(counts)]
    return train.take(torch.from_numpy(np.sort(np.concatenate(shuffled))))


def _counts(labels: Tensor, classes: int) -> Counts:
    return np.bincount(labels.numpy(), minlength=classes).astype(np.int64)
