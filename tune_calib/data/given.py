"""Features and logits that others made: the arrays of a split, and whether they can be such."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tune_calib.data.arrays import CHUNK, Array
from tune_calib.data.numbers import finite, refuse_no_probs, refuse_probs, refuse_unlike
from tune_calib.data.roles import HEAD_ROLES, ROLES, by_role, names_of
from tune_calib.errors import UserError

SMALLEST = 1e-12
"""A probability below it is taken as this: the logarithm of 0 is no number."""

SPLITS = ("train", "select", "calib", "test")

Outputs = Literal["logits", "probs", "head"]


@dataclass(frozen=True)
class OwnHead:
    """Weight (C, D) and bias (C,) of the last layer, float32."""

    weight: Tensor
    bias: Tensor

    def logits(self, features: Tensor) -> Tensor:
        """From features (N, D) to logits (N, C)."""
        return torch.addmm(self.bias, features, self.weight.T)


@dataclass(frozen=True)
class GivenSplit:
    """One split as its files hold it.

    Attributes:
        name: of the split.
        labels: (N,) int64.
        features: (N, D), if there are any.
        outputs: (N, C), logits or probabilities, if there are any.
        has_probs: whether ``outputs`` are probabilities.
        head: gives logits where ``outputs`` do not; none without features.
    """

    name: str
    labels: Tensor
    features: Array | None
    outputs: Array | None
    has_probs: bool
    head: OwnHead | None

    @property
    def classes(self) -> int:
        """Number of classes C."""
        return self.outputs.shape[1] if self.outputs else self._own_head.weight.shape[0]

    @property
    def width(self) -> int:
        """Number of features D; 0 without any."""
        return self.features.shape[1] if self.features else 0

    @property
    def paths(self) -> set[Path]:
        """Files of what is not read at once."""
        return {array.path for array in (self.features, self.outputs) if array}

    @property
    def kind(self) -> Outputs:
        """Where its logits are from."""
        return "head" if self.outputs is None else "probs" if self.has_probs else "logits"

    @property
    def _own_head(self) -> OwnHead:
        assert self.head is not None
        return self.head

    def numbers(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features (M, D) and outputs as they are given, some samples at a time, float32.

        What is not given has a width of 0. So the numbers are the same on every machine.

        Raises:
            UserError: a value is not finite, probabilities are none, or logits are not those of
                the head.
            DamagedFileError: a file cannot be read.
        """
        rows = max(1, CHUNK // max(self.width, self.classes))
        outputs = self._outputs(rows) if self.outputs else None
        if self.features is None:
            assert outputs is not None
            yield from ((values[:, :0], values) for values in outputs)
            return
        for number, values in enumerate(self.features.chunks(rows)):
            features = finite(values, self.features, number * rows)
            if outputs is None:
                yield features, features[:, :0]
                continue
            found = next(outputs)
            refuse_unlike(self._own_head.logits(features), found, self.name, number * rows)
            yield features, found

    def chunks(self, kept: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Features (M, D), D = 0 where there are none, and logits (M, C), some samples at a time.

        Args:
            kept: (N,) bool, of the samples that are wanted; all unless given.
        """
        first = 0
        for features, outputs in self.numbers():
            wanted = slice(None) if kept is None else kept[first : first + len(outputs)]
            first += len(outputs)
            yield features[wanted], self._logits(features[wanted], outputs[wanted])

    def _logits(self, features: Tensor, outputs: Tensor) -> Tensor:
        if self.outputs is None:
            return self._own_head.logits(features)
        return outputs.clamp(min=SMALLEST).log() if self.has_probs else outputs

    def _outputs(self, rows: int) -> Iterator[Tensor]:
        assert self.outputs is not None
        for number, values in enumerate(self.outputs.chunks(rows)):
            found = finite(values, self.outputs, number * rows)
            if self.has_probs:
                refuse_no_probs(found, self.outputs, number * rows)
            elif number == 0:
                refuse_probs(found, self.outputs)
            yield found


def split_of(name: str, files: Sequence[str], head: OwnHead | None = None) -> GivenSplit:
    """What some files say of a split.

    Args:
        name: of the split, ``train``, ``select``, ``calib`` or ``test``.
        files: as the module says.
        head: of the network, if it is given.

    Raises:
        UserError: labels are absent, there are neither logits nor features, or shapes are wrong.
        DamagedFileError: a file cannot be read.
    """
    told = f"`{name}`"
    found = by_role(told, files, ROLES)
    _refuse_roles(f"{told}: {', '.join(files)}", found, head)
    labels, features = found["labels"], found.get("features")
    outputs = found.get("logits") or found.get("probs")
    if len(labels.shape) != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise UserError(
            f"{labels.told} is {labels.shape} of {labels.dtype}; labels are whole numbers, "
            "(samples,)"
        )
    for array in (features, outputs):
        if array is not None:
            _refuse_shape(array, labels.shape[0])
    if features is not None and head is not None and features.shape[1] != head.weight.shape[1]:
        raise UserError(
            f"{features.told} has {features.shape[1]} features, and the weight of `head` is "
            f"{tuple(head.weight.shape)}: it must be (classes, features)"
        )
    given = GivenSplit(
        name=name,
        labels=torch.from_numpy(labels.whole().astype(np.int64)),
        features=features,
        outputs=outputs,
        has_probs="probs" in found,
        head=head if features is not None else None,
    )
    _refuse_classes(given, labels)
    return given


def head_of(files: Sequence[str]) -> OwnHead:
    """The last layer of a network; without a bias it is 0.

    Raises:
        UserError: there is no weight, shapes are wrong or a value is not finite.
        DamagedFileError: a file cannot be read.
    """
    found = by_role("`head`", files, HEAD_ROLES)
    if "weight" not in found:
        raise UserError(f"`head`: {', '.join(files)} has no weight; {names_of(HEAD_ROLES)}")
    tensors = {name: finite(array.whole(), array, 0) for name, array in found.items()}
    weight = tensors["weight"]
    bias = tensors.get("bias", torch.zeros(weight.shape[:1]))
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise UserError(
            f"`head`: weight is {tuple(weight.shape)} and bias {tuple(bias.shape)}; they must be "
            "(classes, features) and (classes,)"
        )
    return OwnHead(weight, bias)


def refuse_unequal(splits: Sequence[GivenSplit]) -> None:
    """Refuse splits that are not of one network.

    Raises:
        UserError: they differ in classes, in features or in what their logits are.
    """
    first, *others = splits
    for other in others:
        for what in ("classes", "width", "kind"):
            one, two = getattr(first, what), getattr(other, what)
            if one != two:
                named = {"width": "features", "kind": "outputs"}.get(what, what)
                raise UserError(
                    f"`{first.name}` and `{other.name}` differ in {named}: {one} and {two}; are "
                    "they of one network?"
                )


def halves(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cut samples in two by a fixed rule that keeps the shares of classes within one sample.

    Each class is shuffled by numpy's seed 1; the samples, class by class, go to the one and to the
    other half in turn.

    Args:
        labels: (N,).

    Returns:
        Who is in the first half, and who in the second, (N,) bool.
    """
    order = np.random.RandomState(1).permutation(len(labels))
    order = order[np.argsort(labels.numpy()[order], kind="stable")]
    first = torch.zeros(len(labels), dtype=torch.bool)
    first[torch.from_numpy(order[::2].copy())] = True
    return first, ~first


def _refuse_roles(told: str, found: Mapping[str, Array], head: OwnHead | None) -> None:
    """Refuse arrays that are too few for a split, or say one thing twice."""
    if "labels" not in found:
        raise UserError(f"{told} has no labels; {names_of(ROLES)}")
    if "logits" in found and "probs" in found:
        raise UserError(f"{told} has logits and probabilities; name one, e.g. logits=FILE:KEY")
    if not found.keys() & {"logits", "probs"} and ("features" not in found or head is None):
        raise UserError(
            f"{told} has no logits or probabilities; give them, or features and the last layer by "
            f"`head`; {names_of(ROLES)}"
        )
    if "features" in found and head is None:
        raise UserError(
            f"{told} has features, which need the last layer of their network: give a file with "
            "weight (classes, features) and bias by `head`, or name the logits alone: "
            "logits=FILE:KEY"
        )
    if "features" in found and "probs" in found:
        raise UserError(
            f"{told} has probabilities beside features and `head`, which say all of them; leave "
            "them out"
        )


def _refuse_shape(array: Array, samples: int) -> None:
    if len(array.shape) != 2 or not np.issubdtype(array.dtype, np.floating):
        raise UserError(
            f"{array.told} is {array.shape} of {array.dtype}; it must be (samples, columns) of "
            "floating-point numbers"
        )
    if array.shape[0] != samples:
        raise UserError(
            f"{array.told} has {array.shape[0]} samples, and {samples} labels are beside it"
        )
    if samples == 0 or array.shape[1] == 0:
        raise UserError(f"{array.told} is empty: {array.shape}")


def _refuse_classes(given: GivenSplit, labels: Array) -> None:
    if given.classes < 2:
        raise UserError(f"`{given.name}`: a classifier has at least 2 classes, got {given.classes}")
    for wrong in (int(given.labels.min()), int(given.labels.max())):
        if not 0 <= wrong < given.classes:
            raise UserError(
                f"{labels.told} has the label {wrong}, and there are {given.classes} classes: "
                f"labels are 0 to {given.classes - 1}"
            )
