"""Splits of imported features and logits, and checks of their values."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tune_calib.data.arrays import HEAD_ROLES, ROLES, Array, Rows, describe_roles, find_arrays
from tune_calib.data.rules import divide
from tune_calib.errors import UserError
from tune_calib.metrics import validation
from tune_calib.metrics.scoring import check_order
from tune_calib.metrics.validation import SMALLEST, UNEVEN

UNLIKE = 0.01  # largest difference between logits and those of the head, relative to the largest
CHUNK = 2**22  # number of values processed at once
_NEGATIVE = 1e-6  # rounding may leave a probability of zero below it

Outputs = Literal["logits", "probs", "head"]


@dataclass(frozen=True)
class LinearHead:
    """Weight (C, D) and bias (C,) of a network's last layer, float32."""

    weight: Tensor
    bias: Tensor

    def logits(self, features: Tensor) -> Tensor:
        return torch.addmm(self.bias, features, self.weight.T)


@dataclass(frozen=True)
class ImportedSplit:
    name: str  # train, select, calib or test
    labels: Tensor  # (N,) int64
    classes: int
    arrays: dict[str, Array]  # arrays of the files by role, for messages
    features: Rows | None  # (N, D), if there are any
    outputs: Rows | None  # (N, C), logits or probabilities, if there are any
    # Last layer, which computes logits if there are no ``outputs``; None without features.
    head: LinearHead | None
    groups: Tensor | None = None  # (N,) int64; samples with the same number belong together

    @property
    def width(self) -> int:
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def kind(self) -> Outputs:
        if self.outputs is None:
            return "head"
        return "probs" if "probs" in self.arrays else "logits"

    def numbers(self) -> Iterator[tuple[Tensor, Tensor]]:
        # A fixed number of rows, because the last digits of the head's logits depend on it.
        rows = max(1, CHUNK // max(self.width, self.classes))
        are_probabilities = self.kind == "logits"
        for first in range(0, len(self.labels), rows):
            last = min(first + rows, len(self.labels))
            features = outputs = torch.empty(last - first, 0)
            if self.features is not None:
                features = _finite(self.features[first:last], self.arrays["features"], first)
            if self.outputs is not None:
                array = self.arrays[self.kind]
                outputs = _finite(self.outputs[first:last], array, first)
                if self.kind == "probs":
                    _check_probs(outputs, array, first)
                else:
                    are_probabilities &= validation.are_probabilities(outputs)
                if self.head is not None:
                    self._check_logits(features, outputs, first)
            yield features, outputs
        if are_probabilities:
            raise UserError(
                f"{self.arrays['logits']}: the rows sum to one, so these are probabilities; import "
                "them as probs=FILE:KEY"
            )

    def chunks(self, mask: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features (M, D) and logits (M, C) in order; ``mask`` (N,) bool selects samples."""
        first = 0
        for features, outputs in self.numbers():
            if mask is not None:
                is_used = mask[first : first + len(outputs)]
                first += len(outputs)
                features, outputs = features[is_used], outputs[is_used]
            if self.kind == "probs":
                outputs = outputs.clamp(min=SMALLEST).log()
            elif self.kind == "head":
                assert self.head is not None
                outputs = self.head.logits(features)
            yield features, outputs

    def check_order(self) -> None:
        top = torch.cat([logits.argmax(1) for _, logits in self.chunks()])
        name, way = str(self.arrays["labels"]), "number the classes from 0 as the columns"
        with validation.as_user_error():
            check_order(top, self.labels, np.arange(self.classes), name=name, way=way)

    def _check_logits(self, features: Tensor, logits: Tensor, first: int) -> None:
        assert self.head is not None
        difference = (self.head.logits(features) - logits).abs().amax(1)
        wrong = difference > UNLIKE * max(1.0, float(logits.abs().max()))
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise UserError(
                f"`{self.name}`: the logits of row {first + row} differ from those of `head` by "
                f"{float(difference[row]):g}; are these features the inputs of the last layer?"
            )


def read_split(name: str, files: Sequence[str], head: LinearHead | None = None) -> ImportedSplit:
    setting = f"`{name}`"
    arrays = find_arrays(setting, files, ROLES)
    _check_roles(f"{setting}: {', '.join(files)}", arrays.keys(), head is not None)
    values = {role: array.read() for role, array in arrays.items()}
    for role in {"logits", "probs"} & values.keys():
        values[role] = validation.two_columns(values[role], role)
    groups, label_name = values.pop("groups", None), str(arrays["labels"])
    if values["labels"].dtype.kind in "OSU":
        raise UserError(
            f"{label_name} contains text; labels must be integers, (samples,); a label is the "
            "number of its column in the logits, from 0"
        )
    with validation.as_user_error():
        labels = validation.read_labels(values.pop("labels"), label_name)
    if groups is not None:
        _check_shape(groups, arrays["groups"], len(labels), 1, np.integer)
    for role, rows in values.items():
        _check_shape(rows, arrays[role], len(labels), 2, np.floating)
    features, outputs = values.get("features"), values.get("logits", values.get("probs"))
    classes = 0
    if head is not None and features is not None:
        classes = len(head.weight)
        if features.shape[1] != head.weight.shape[1]:
            raise UserError(
                f"{arrays['features']} has {features.shape[1]} features, but the weight of `head` "
                f"is {tuple(head.weight.shape)}; it must be (classes, features)"
            )
    if outputs is not None:
        classes = outputs.shape[1]
    if classes < 2:
        raise UserError(f"{setting}: a classifier needs at least 2 classes, got {classes}")
    with validation.as_user_error():
        numbers = validation.number_labels(labels, len(labels), np.arange(classes), label_name)
    head = None if features is None else head
    group_numbers = None if groups is None else torch.from_numpy(groups.astype(np.int64))
    return ImportedSplit(name, numbers, classes, arrays, features, outputs, head, group_numbers)


def read_head(files: Sequence[str]) -> LinearHead:
    arrays = find_arrays("`head`", files, HEAD_ROLES)
    if "weight" not in arrays:
        raise UserError(
            f"{', '.join(files)} has no weight; {describe_roles(HEAD_ROLES)}", setting="head"
        )
    tensors = {role: _finite(array.read(), array, 0) for role, array in arrays.items()}
    weight = tensors["weight"]
    bias = tensors.get("bias", torch.zeros(weight.shape[:1]))
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise UserError(
            f"weight is {tuple(weight.shape)} and bias {tuple(bias.shape)}; they must be "
            "(classes, features) and (classes,)",
            setting="head",
        )
    return LinearHead(weight, bias)


def halves(labels: Tensor, groups: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return masks (N,) of two halves, to which the samples of a class, or groups, go in turn."""
    chance, is_first = np.random.RandomState(1), torch.zeros(len(labels), dtype=torch.bool)
    if groups is not None:
        places, _ = divide(labels, (len(labels) + 1) // 2, chance, groups)
    else:
        order = chance.permutation(len(labels))
        order = order[np.argsort(labels.numpy()[order], kind="stable")]
        places = torch.from_numpy(order[::2].copy())
    is_first[places] = True
    return is_first, ~is_first


def _check_roles(where: str, roles: Collection[str], has_head: bool) -> None:
    if "labels" not in roles:
        raise UserError(f"{where} has no labels; {describe_roles(ROLES)}")
    if "probs" in roles and {"logits", "features"} & {*roles}:
        raise UserError(
            f"{where} has probabilities beside logits or features, from which they follow; select "
            "one, e.g. logits=FILE:KEY"
        )
    if "features" in roles and not has_head:
        raise UserError(
            f"{where} has features, which need the last layer of their network: provide a file "
            "with weight (classes, features) and bias as `head`, or import only the logits: "
            "logits=FILE:KEY"
        )
    if not {"logits", "probs", "features"} & {*roles}:
        raise UserError(
            f"{where} has no logits or probabilities; add them, or features and the last layer in "
            f"`head`; {describe_roles(ROLES)}"
        )


def _check_shape(rows: Rows, array: Array, samples: int, axes: int, kind: type[Any]) -> None:
    if rows.ndim != axes or not np.issubdtype(rows.dtype, kind) or 0 in rows.shape:
        shape = "(samples,) of whole" if axes == 1 else "(samples, columns) of floating-point"
        raise UserError(f"{array} is {rows.shape} of {rows.dtype}; it must be {shape} numbers")
    if len(rows) != samples:
        raise UserError(f"{array} has {len(rows)} samples, but there are {samples} labels")


def _finite(rows: Rows, array: Array, first: int) -> Tensor:
    """Convert rows of an array, which start at row ``first``, to finite float32."""
    if not np.issubdtype(rows.dtype, np.floating):
        raise UserError(f"{array} contains {rows.dtype}; it must contain floating-point numbers")
    with np.errstate(over="ignore"):
        tensor = torch.from_numpy(np.array(rows, np.float32))
    wrong = ~tensor.isfinite()
    if bool(wrong.any()):
        row = first + int(wrong.nonzero()[0, 0])
        raise UserError(f"{array}: row {row} contains a value that is not finite (NaN or inf)")
    return tensor


def _check_probs(probs: Tensor, array: Array, first: int) -> None:
    sums = probs.double().sum(1)
    wrong = ((probs < -_NEGATIVE) | (probs > 1 + UNEVEN)).any(1) | ((sums - 1).abs() > UNEVEN)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise UserError(
            f"{array}: row {first + row} is not a vector of probabilities (from "
            f"{float(probs[row].min()):g} to {float(probs[row].max()):g}, sum "
            f"{float(sums[row]):g}); if these are logits, import them as logits=FILE:KEY; if they "
            "are rounded, divide each row by its sum"
        )
