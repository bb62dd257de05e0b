"""Weights that a network starts from: a local safetensors file, kept in the store by its hash.

Whoever trains reads the copy in the store, so that no other machine needs the file.
"""

import hashlib
import re
import shutil
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tune_calib.engine.store import Store, opened, write_folder
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.models.network import Network
from tune_calib.spec import NetworkSlot

KIND, FILE = "weights", "weights.safetensors"

# What programs put before all names, and how they call the last layer.
_PREFIX = re.compile(r"^(module\.|model\.|network\.)+")
_HEADS = ("head", "fc", "classifier", "linear", "head.fc")


def is_hash(weights: str) -> bool:
    """Whether ``network.weights`` is a hash already, and no path."""
    return re.fullmatch(r"[0-9a-f]{16}", weights) is not None


def keep(path: Path, store: Store) -> str:
    """Copy a file of weights into the store.

    Returns:
        Its hash, 16 hexadecimal digits.

    Raises:
        UserError: there is no such file, or it is no safetensors file.
    """
    read(path)  # for what it refuses: a damaged file is told now, and not by whoever trains
    identity = hash_of(path)
    if not store.holds(KIND, identity):
        folder = store.folder(KIND, identity)
        write_folder(folder, lambda at: shutil.copyfile(path, at / FILE), {"name": path.name})  # type: ignore[arg-type]
    return identity


def hash_of(path: Path) -> str:
    """What stands for a file in specs."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def read(path: Path) -> dict[str, Tensor]:
    """Read a file of weights.

    Raises:
        UserError: there is no such file, or it is no safetensors file.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"network.weights: {path} is no safetensors file that can be read ({reason}); files of "
            "torch.save must be converted, since to read them runs what is in them"
        ) from None


def start_from(network: Network, slot: NetworkSlot, store: Store) -> None:
    """Put the kept weights of a slot into its network.

    Raises:
        UserError: the store does not hold them, or they are of another network.
    """
    identity = slot.weights
    assert identity is not None
    try:
        folder, _ = opened(store.folder(KIND, identity))
    except DamagedFileError as error:
        raise UserError(
            f"network.weights: {store.root} does not hold the weights {identity} ({error}); run "
            "the command that began this once more, with the file"
        ) from None
    fitted, _ = fit(network, read(folder / FILE), identity, slot.is_given)
    network.load_state_dict(fitted, strict=False)


def fit(
    network: Network, tensors: dict[str, Tensor], told: str, is_given: bool = False
) -> tuple[dict[str, Tensor], str]:
    """Weights under the names of a network.

    The last layer of what is trained on may be of other classes: it stays as it is drawn.

    Args:
        network: that is to start from them.
        tensors: of the file; names as of this program, of timm or of torchvision.
        told: how a message names the file.
        is_given: the network is not trained, so that the last layer must fit too.

    Returns:
        The weights, and what of the network is not among them, in words; nothing if all of it is.

    Raises:
        UserError: they are of another network.
    """
    own = network.state_dict()
    given = {_own_name(name, own): tensor for name, tensor in tensors.items()}
    head = {name: tensor for name, tensor in given.items() if name.startswith("head.")}
    body = {name: tensor for name, tensor in given.items() if name not in head}
    wanted = {name for name in own if not name.startswith("head.")}
    # A counter that no result depends on, and which some programs leave out.
    absent = sorted(n for n in wanted - body.keys() if not n.endswith("num_batches_tracked"))
    foreign = sorted(body.keys() - wanted)
    other = sorted(n for n in body.keys() & wanted if body[n].shape != own[n].shape)
    if absent or foreign or other:
        first = (
            f"{other[0].removeprefix('backbone.')} is {tuple(body[other[0]].shape)} there and "
            f"{tuple(own[other[0]].shape)} here"
            if other
            else f"it has no {absent[0].removeprefix('backbone.')}"
            if absent
            else f"it has {foreign[0]}, which the network has not"
        )
        raise UserError(
            f"network.weights: {told} is of another network ({first}; {len(absent)} tensors are "
            f"absent, {len(foreign)} foreign, {len(other)} of another shape); name the backbone "
            "that it was saved from"
        )
    fits = all(
        name in head and head[name].shape == own[name].shape for name in own if name[:5] == "head."
    )
    if fits and head:
        return {**body, **head}, ""
    if is_given:
        raise UserError(_other_classes(own, head, told))
    return body, "its last layer is of other classes: the network's own stays as it is drawn"


def _other_classes(own: dict[str, Tensor], head: dict[str, Tensor], told: str) -> str:
    wanted = tuple(own["head.weight"].shape)
    there = head.get("head.weight")
    found = "has none" if there is None else f"is {tuple(there.shape)}"
    return (
        f"network.weights: the last layer of {told} {found}, and that of the network is {wanted} "
        "with a bias: one that is not trained (network.epochs=0) needs its own; are these the "
        "weights of a classifier of this data set?"
    )


def _own_name(name: str, own: dict[str, Tensor]) -> str:
    name = _PREFIX.sub("", name)
    if name in own:
        return name
    layer, _, kind = name.rpartition(".")
    if layer in _HEADS and kind in ("weight", "bias") and f"backbone.{name}" not in own:
        return f"head.{kind}"
    return f"backbone.{name}"
