"""Weights of a file under the names of a network: by names, else by shape and order.

A wrong assignment would be another network under this one's name, so that what is not beyond doubt
is refused in one line that says what does not fit.
"""

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from tune_calib.engine.tensors import unnest
from tune_calib.errors import UserError
from tune_calib.models.base import last_layer_of
from tune_calib.models.network import Network
from tune_calib.text import format_count

# What programs put before all names, and how they call the last layer.
_PREFIX = re.compile(r"^((module|model|network|_orig_mod|net)\.)+")
_HEADS = ("head", "fc", "classifier", "linear", "head.fc")

# No result depends on it, and some programs leave it out.
_COUNTER = "num_batches_tracked"

BESIDE_NETWORK = ("method", "classifier")
"""What artifacts and exports of this program hold beside a network."""

_NAMED = 3
"""Tensors that a message names of those that do not fit."""

_Shape = tuple[int, ...]
_Layers = dict[str, dict[str, _Shape]]
_Signature = tuple[tuple[str, _Shape], ...]


def fit(
    network: Network, tensors: Mapping[str, Tensor], told: str, is_given: bool = False
) -> tuple[dict[str, Tensor], str]:
    """Weights under the names of a network.

    The last layer of what is trained on may be of other classes: it stays as it is drawn.

    Args:
        network: that is to start from them.
        tensors: of the file; names as of this program, of the backbone's own module, of timm or of
            torchvision, or others where shapes and order leave one way to assign them.
        told: how a message names the file.
        is_given: the network is not trained, so that the last layer must fit too.

    Returns:
        The weights, and what is to be said of them, in words; nothing if all have their names.

    Raises:
        UserError: they are of another network.
    """
    own = network.state_dict()
    tensors = _of_network(tensors)
    _refuse_rounded(tensors, told)
    last = last_layer_of(network.backbone)
    given = _renamed(tensors, own, (last, *_HEADS) if last else _HEADS, told)
    if wrong := _misfits(own, given):
        matched = _by_order(own, tensors)
        if matched is None:
            raise _another(wrong, own, given, told)
        return matched, "its names are others: each tensor is taken by its shape and place"
    head = {name: tensor for name, tensor in given.items() if _is_head(name)}
    body = {name: tensor for name, tensor in given.items() if name not in head}
    if is_given and head.keys() == {"head.weight"}:
        head["head.bias"] = torch.zeros_like(own["head.bias"])
    wanted = {name: tensor.shape for name, tensor in own.items() if _is_head(name)}
    if {name: tensor.shape for name, tensor in head.items()} == wanted:
        return {**body, **head}, ""
    if is_given:
        raise _other_classes(own, head, told)
    return body, "its last layer is of other classes: the network's own stays as it is drawn"


def _refuse_rounded(tensors: Mapping[str, Tensor], told: str) -> None:
    """Refuse weights of whole numbers, whose scales nobody here knows."""
    for name, tensor in tensors.items():
        if name.endswith(".weight") and not tensor.is_floating_point():
            raise UserError(
                f"network.weights: {told} is of a quantised network ({name} is {tensor.dtype}); "
                "give its weights as floating-point numbers"
            )


def _of_network(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Of an artifact or an export of this program what is of the network itself."""
    parts = {name.partition(".")[0] for name in tensors}
    if "network" not in parts or not parts <= {"network", *BESIDE_NETWORK}:
        return tensors
    return unnest("network", dict(tensors))


def _is_head(name: str) -> bool:
    return name.startswith("head.")


def _renamed(
    tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], heads: Iterable[str], told: str
) -> dict[str, Tensor]:
    """Tensors of a file under the names of a network, as far as names tell."""
    renamed: dict[str, str] = {}
    for name in tensors:
        new = _own_name(name, own, heads)
        if new in renamed:
            raise UserError(
                f"network.weights: {told} has both {renamed[new]} and {name}, and nobody knows "
                "which is meant; leave one of them out of the file"
            )
        renamed[new] = name
    return {new: tensors[name] for new, name in renamed.items()}


def _own_name(name: str, own: Mapping[str, Tensor], heads: Iterable[str]) -> str:
    # As it stands before without a prefix: a module of the user's may have a part named `model`.
    for each in dict.fromkeys((name, _PREFIX.sub("", name))):
        if each in own:
            return each
        if f"backbone.{each}" in own:
            return f"backbone.{each}"
        layer, _, kind = each.rpartition(".")
        if layer in heads and kind in ("weight", "bias"):
            return f"head.{kind}"
    return f"backbone.{name}"


def _misfits(
    own: Mapping[str, Tensor], given: Mapping[str, Tensor]
) -> tuple[list[str], list[str], list[str]] | None:
    """Names of the body that are absent, foreign or of another shape; None if there is none."""
    body = {name for name in given if not _is_head(name)}
    wanted = {name for name in own if not _is_head(name)}
    absent = [n for n in own if n in wanted - body and not n.endswith(_COUNTER)]
    foreign = sorted(body - wanted)
    other = [n for n in own if n in body & wanted and given[n].shape != own[n].shape]
    return (absent, foreign, other) if absent or foreign or other else None


def _another(
    wrong: tuple[list[str], list[str], list[str]],
    own: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    told: str,
) -> UserError:
    absent, foreign, other = wrong
    shapes = [f"{n} {tuple(given[n].shape)} there and {tuple(own[n].shape)} here" for n in other]
    parts = [
        _listed("of another shape", len(other), shapes),
        _listed("absent", len(absent), absent),
        _listed("foreign", len(foreign), foreign),
    ]
    found = "; ".join(part for part in parts if part)
    # The stem of ResNets on small images, which weights of ImageNet do not have.
    is_stem = [*other, *absent, *foreign] == ["backbone.conv1.weight"]
    way = (
        "a ResNet of timm has another stem on images of up to 64 pixels: give your network as "
        "FILE.py:FUNCTION"
        if is_stem
        else "name the backbone that it was saved from, or give it as FILE.py:FUNCTION"
    )
    return UserError(f"network.weights: {told} is of another network ({found}); {way}")


def _listed(what: str, count: int, names: list[str]) -> str:
    shown = [name.replace("backbone.", "", 1) for name in names[:_NAMED]]
    more = ", ..." if count > _NAMED else ""
    return f"{format_count(count, 'tensor')} {what}: {', '.join(shown)}{more}" if count else ""


def _other_classes(own: Mapping[str, Tensor], head: Mapping[str, Tensor], told: str) -> UserError:
    there = head.get("head.weight")
    found = "none" if there is None else str(tuple(there.shape))
    return UserError(
        f"network.weights: the last layer of {told} is {found}, and a network that is not trained "
        f"(network.epochs=0) needs one of {tuple(own['head.weight'].shape)}: is it a classifier of "
        "this data set, whose logits come straight out of a linear layer?"
    )


def _by_order(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Tensors by shape and order, where there is one way; None where there is none or several.

    Layers of one kind of tensors and shapes are taken in the order of the numbers in their names.
    Where letters, and not numbers, tell two such layers apart, nobody knows which comes first (q, k
    and v of an attention), and wherever numbers order layers of a file, they must be in the same
    order here.
    """
    here, there = _layers(own), _layers(tensors)
    by_signature = [_grouped(layers) for layers in (here, there)]
    if {k: len(v) for k, v in by_signature[0].items()} != {
        k: len(v) for k, v in by_signature[1].items()
    }:
        return None
    taken: dict[str, str] = {}
    for signature, names in by_signature[0].items():
        others = by_signature[1][signature]
        if names != sorted(names, key=_words) or not all(map(_is_numbered, (names, others))):
            return None
        taken |= dict(zip(sorted(others, key=_words), names, strict=True))
    places = {name: place for place, name in enumerate(here)}
    ordered = sorted(taken, key=_words)
    for index, one in enumerate(ordered):
        for other in ordered[index + 1 :]:
            if _by_number(one, other) and places[taken[one]] > places[taken[other]]:
                return None
    return {
        f"{taken[layer]}.{kind}": tensors[f"{layer}.{kind}" if layer else kind]
        for layer, kinds in there.items()
        for kind in kinds
    }


def _layers(tensors: Mapping[str, Tensor]) -> _Layers:
    """Shapes of each layer's tensors, by its name; without counters."""
    layers: _Layers = {}
    for name, tensor in tensors.items():
        layer, _, kind = name.rpartition(".")
        if kind != _COUNTER:
            layers.setdefault(layer, {})[kind] = tuple(tensor.shape)
    return layers


def _grouped(layers: _Layers) -> dict[_Signature, list[str]]:
    groups: dict[_Signature, list[str]] = {}
    for name, shapes in layers.items():
        groups.setdefault(tuple(sorted(shapes.items())), []).append(name)
    return groups


def _is_numbered(names: list[str]) -> bool:
    """Whether numbers alone tell the names of alike layers apart."""
    ordered = sorted(names, key=_words)
    return all(map(_by_number, ordered, ordered[1:]))


def _by_number(one: str, other: str) -> bool:
    """Whether two names differ first in a number."""
    pairs = zip(_words(one), _words(other), strict=False)
    first = next(((a, b) for a, b in pairs if a != b), None)
    return first is not None and first[0][0] == first[1][0] == 0


def _words(name: str) -> list[tuple[int, int, str]]:
    """A name as words and numbers, which sort as such."""
    found = re.findall(r"\d+|\D+", name)
    return [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in found]
