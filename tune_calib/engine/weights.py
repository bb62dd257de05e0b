"""Initial weights of a network from a local safetensors file, stored by its hash.

Tensors are matched by name. A file that does not match is an error, since a wrong assignment would
silently give a different network.
"""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from tune_calib.engine.execution import Tensors
from tune_calib.engine.tensors import unnest
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import checksum_of, unseal
from tune_calib.files.store import ARTIFACT_MANIFEST, Store, opened, write_folder
from tune_calib.models.network import Network
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import format_count

KIND, FILE = "weights", "weights.safetensors"
SPEC = "spec"  # key of the spec in the metadata of a file or in the manifest next to it

# Prefixes that programs add to all names, and names of the last layer.
_PREFIX = re.compile(r"(module|model|network|_orig_mod|net|backbone)\.")
_HEAD: tuple[str, ...] = ("head.weight", "head.bias")
_HEADS = ("head", "fc", "classifier", "linear", "head.fc")

_PARTS = {"network", "method", "classifier"}  # prefixes in artifacts and exports of this program
_NAMED = 3  # largest number of tensors of one kind listed in a message


def store_weights(path: Path, store: Store) -> str:
    """Copy a file of weights into the store, with the spec that trained it; return its hash."""
    read(path)  # raises for a damaged file now, and not during training
    identity = hash_of(path)
    folder = store.folder(KIND, identity)

    def fill(at: Path) -> None:
        shutil.copyfile(path, at / FILE)

    def make(_: object) -> None:
        spec = trained_by(path)
        text = spec.canonical_json() if spec else None
        write_folder(folder, fill, {"name": path.name, SPEC: text})

    store.ensure(folder, KIND, opened, make)
    return identity


def trained_by(path: Path) -> TrialSpec | None:
    """Return the spec, in or beside a file, with which this program trained its weights."""
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
        if SPEC in (metadata := file.metadata() or {}):
            return _parse_spec(metadata[SPEC])
    digest = checksum_of(path)
    for description in (path.parent / ARTIFACT_MANIFEST, path.with_suffix(".json")):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            text = description.read_text()
            manifest: dict[str, Any] = json.loads(text)
            if digest in (manifest.get("sha256"), manifest.get("files", {}).get(path.name)):
                return _parse_spec(json.dumps(unseal(text, description).get(SPEC)))
    return None


def trained_spec(identity: str, store: Store) -> TrialSpec | None:
    with contextlib.suppress(DamagedFileError):
        return _parse_spec(opened(store.folder(KIND, identity))[1].get(SPEC))
    return None


def _parse_spec(text: Any) -> TrialSpec | None:
    # A spec of a later version, or of a plug-in that is not in use, cannot be read here.
    with contextlib.suppress(UserError, ValueError, TypeError):
        slots = json.loads(text)
        if isinstance(slots, str):  # the text of a spec, as in manifests of artifacts
            slots = json.loads(slots)
        return TrialSpec.build(**slots)
    return None


def hash_of(path: Path) -> str:
    return checksum_of(path)[:16]


def read(path: Path) -> Tensors:
    """Read a safetensors file of weights; raise if a number is not finite."""
    try:
        tensors = load_file(path)
    except Exception as error:  # also of torch, for a tensor that it cannot build
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"network.weights: {path} is not a readable safetensors file ({reason}); files of "
            "torch.save must be converted, since reading them may run code"
        ) from None
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise UserError(
                f"network.weights: {path}: {name} contains NaN or infinity; did its training "
                "diverge?"
            )
    return tensors


def start_from(network: Network, slot: NetworkSlot, store: Store) -> None:
    identity = slot.weights
    assert identity is not None
    try:
        folder, _ = opened(store.folder(KIND, identity))
    except DamagedFileError as error:
        raise UserError(
            f"network.weights: {store.root} does not contain the weights {identity} ({error}); run "
            "the first command again with the file"
        ) from None
    tensors = read(folder / FILE)
    matched, _ = match_weights(network, tensors, identity, is_frozen=slot.is_frozen)
    network.load_state_dict(matched, strict=False)


def match_weights(
    network: Network, tensors: Tensors, file: str, is_frozen: bool = False
) -> tuple[Tensors, str]:
    """Return the tensors of a file under the names of a network, and a note on its last layer.

    A last layer with other classes keeps its initial values, as the note says, or is an error if
    the network is not trained (``is_frozen``).
    """
    expected = network.state_dict()
    parts = {name.partition(".")[0] for name in tensors}
    if "network" in parts and parts <= _PARTS:
        tensors = unnest("network", tensors)
    for name, tensor in tensors.items():
        if name.endswith(".weight") and not tensor.is_floating_point():
            raise UserError(
                f"network.weights: {file} belongs to a quantised network ({name} is "
                f"{tensor.dtype}); provide its weights as floating-point numbers"
            )
    last = vars(network.backbone).get("name_of_last_layer")  # see ``name_last_layer``
    matched = _rename(tensors, expected, last, file)
    head = {name: matched.pop(name) for name in _HEAD if name in matched}
    expected_head = {name: expected.pop(name) for name in _HEAD}
    _refuse_other_network(expected, matched, file)
    if is_frozen and head.keys() == {"head.weight"}:
        head["head.bias"] = torch.zeros_like(expected_head["head.bias"])
    shapes, needed = _shapes(head), _shapes(expected_head)
    if shapes == needed:
        return {**matched, **head}, ""
    if not is_frozen:
        return matched, "its last layer has other classes; the network's keeps its initial values"
    raise UserError(
        f"network.weights: the last layer of {file} has shape "
        f"{shapes.get('head.weight', 'none')}, but a network that is not trained "
        f"(network.epochs=0) needs {needed['head.weight']}: is it a classifier of this data "
        "set, whose logits are the output of a linear layer?"
    )


def _shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _rename(tensors: Tensors, expected: Tensors, last: str | None, file: str) -> Tensors:
    """Return the tensors of a file under the names of a network, unknown ones under its body."""
    names: dict[str, str] = {}  # in the file, by names in the network
    for name in tensors:
        new = next(_candidate_names(name, expected, last), f"backbone.{name}")
        if new in names:
            raise UserError(
                f"network.weights: {file} has both {names[new]} and {name} for the same tensor; "
                "remove one of them from the file"
            )
        names[new] = name
    return {new: tensors[name] for new, name in names.items()}


def _candidate_names(name: str, expected: Tensors, last: str | None) -> Iterator[str]:
    """Yield possible names of a tensor in the network, first with all prefixes, then with fewer."""
    while True:
        for candidate in (name, f"backbone.{name}"):
            if candidate in expected:
                yield candidate
        layer, _, kind = name.rpartition(".")
        if layer in (last, *_HEADS) and kind in ("weight", "bias"):
            yield f"head.{kind}"
        # One prefix at a time: a user's module may have a part named `model`.
        if not (prefix := _PREFIX.match(name)):
            return
        name = name[prefix.end() :]


def _refuse_other_network(expected: Tensors, matched: Tensors, file: str) -> None:
    shapes, needed = _shapes(matched), _shapes(expected)
    reshaped = [name for name, shape in needed.items() if shapes.get(name, shape) != shape]
    missing = [name for name in needed if name not in shapes]
    # Results do not depend on the counter of batches, and some programs leave it out.
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    unknown = sorted(matched.keys() - expected.keys())
    descriptions = []
    kinds = {"of another shape": reshaped, "missing": missing, "unknown": unknown}
    for kind, names in kinds.items():
        if names:
            listed = [name.removeprefix("backbone.") for name in names[:_NAMED]]
            listed += ["..."] * (len(names) > _NAMED)
            descriptions.append(f"{format_count(len(names), 'tensor')} {kind}: {', '.join(listed)}")
    if not descriptions:
        return
    way = "use the backbone from which it was saved, or provide the network as FILE.py:FUNCTION"
    # The stem of ResNets for small images, which weights of ImageNet do not have.
    if descriptions == ["1 tensor of another shape: conv1.weight"]:
        way = (
            "a ResNet of timm has a different stem for images of up to 64 pixels; for images of "
            "your own, set data.crop (and data.resize) to the size that the network was trained "
            "on, or provide your network as FILE.py:FUNCTION"
        )
    raise UserError(
        f"network.weights: {file} belongs to another network ({'; '.join(descriptions)}); {way}"
    )
