"""Find samples that splits share, or that one repeats, unless they may be equal by chance."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_calib.data.imported import ImportedSplit
from tune_calib.errors import UserError
from tune_calib.files.documents import hash_bytes

MOST = 50  # largest number of samples of a row in two splits that may tell copies from chance
SHARED = 0.01  # share of a split's samples that may be in another split, as in published data sets
COPIED = 0.1  # share of the rows of a split that may be copies; data sets contain a few
SURE = 4.0  # standard deviations by which copies must exceed the number expected by chance


@dataclass(frozen=True)
class Summary:
    """Digest of a split, and 64-bit hashes of its distinct rows, (M,) uint64, with counts."""

    digest: str
    samples: int
    rows: Any
    counts: Any


def summarise(split: ImportedSplit) -> Summary:
    """Summarise a split, whose values are checked while they are read."""
    shapes = repr((len(split.labels), split.width, split.classes, split.kind)).encode()
    features_digest, outputs_digest = hashlib.sha256(shapes), hashlib.sha256(shapes)
    outputs_digest.update(split.labels.numpy().tobytes())
    sums = []
    for features, outputs in split.numbers():
        features_digest.update(features.contiguous().numpy().data)
        outputs_digest.update(outputs.contiguous().numpy().data)
        # A 64-bit hash of each row: the same for equal rows, and hardly ever for others.
        values = features if split.width else outputs
        bits = values.contiguous().numpy().view(np.uint32).astype(np.uint64)
        odd = np.random.RandomState(1).randint(1, 2**63, bits.shape[1], np.uint64) | np.uint64(1)
        sums.append((bits * odd).sum(1, dtype=np.uint64))
    rows, counts = np.unique(np.concatenate(sums), return_counts=True)
    digest = f"{features_digest.hexdigest()}+{outputs_digest.hexdigest()}"
    if split.groups is not None:
        digest += f"+{hash_bytes(split.groups.numpy().tobytes())}"
    return Summary(digest, len(split.labels), rows, counts)


def count_shared(left: Summary, right: Summary) -> int:
    """Count the rows that two splits share; 0 if they are few or may be equal by chance.

    Rows may be repeated in a split, and probabilities of two classes, with few digits or near 1 can
    be equal by chance. Chance divides the n samples of a row between the splits at random: whatever
    its rates there, both get some with a probability of at most 1 - 2^(1 - n).
    """
    if left.digest == right.digest:
        return left.samples
    rows, indices = np.unique(np.concatenate([left.rows, right.rows]), return_inverse=True)
    counts = np.zeros((len(rows), 2), np.int64)
    # All samples of a split may be repeated equally often.
    counts[indices[: len(left.rows)], 0] = left.counts // np.gcd.reduce(left.counts)
    counts[indices[len(left.rows) :], 1] = right.counts // np.gcd.reduce(right.counts)
    counts = counts[counts.sum(1) <= MOST]
    by_chance = 1 - 2.0 ** (1 - counts.sum(1))
    shared = int((counts > 0).all(1).sum())
    excess = shared - by_chance.sum()
    is_sure = excess > SURE * math.sqrt((by_chance * (1 - by_chance)).sum())
    return shared if is_sure and excess > SHARED * min(len(left.rows), len(right.rows)) else 0


def refuse_copies(calib: Summary) -> None:
    """Refuse a split with copies of samples, which would be in both of its halves.

    Where rows are equal by chance, f_n, the number of rows with n samples, is at most the square
    root of f_(n-1) f_(n+1) (n+1)/n on average.
    """
    for n in (2, 3):
        fewer, copies, more = (int(np.sum(calib.counts == count)) for count in (n - 1, n, n + 1))
        by_chance = math.sqrt(fewer * more * (n + 1) / n)
        bound = COPIED * len(calib.rows) + SURE * math.sqrt(copies + by_chance)
        if copies - by_chance > bound:
            raise UserError(
                f"contains {copies} samples {n} times, so that its halves select and calib would "
                "share them; remove the copies, or give `select`",
                setting="calib",
            )
