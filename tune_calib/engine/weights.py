"""Weights that a network starts from: a local safetensors file, kept in the store by its hash.

Whoever trains reads the copy in the store, so that no other machine needs the file.
"""

import contextlib
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from tune_calib.engine.fitting import fit
from tune_calib.engine.store import (
    ARTIFACT_MANIFEST,
    Store,
    artifact_manifest,
    opened,
    read_or_remove,
    write_folder,
)
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.models.network import Network
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec

KIND, FILE = "weights", "weights.safetensors"

SPEC = "spec"
"""Key of the spec in the metadata of a file, or the manifest beside it."""


def is_hash(weights: str) -> bool:
    """Whether ``network.weights`` is a hash already, and no path."""
    return re.fullmatch(r"[0-9a-f]{16}", weights) is not None


def keep(path: Path, store: Store) -> str:
    """Copy a file of weights into the store, with what is known of their training.

    Returns:
        Its hash, 16 hexadecimal digits.

    Raises:
        UserError: there is no such file, or it is no safetensors file.
    """
    read(path)  # for what it refuses: a damaged file is told now, and not by whoever trains
    identity = hash_of(path)
    folder = store.folder(KIND, identity)
    with contextlib.suppress(DamagedFileError):
        artifact_manifest(folder)
        return identity

    def fill(at: Path) -> None:
        shutil.copyfile(path, at / FILE)
        if hash_of(at / FILE) != identity:
            raise UserError(f"network.weights: {path} was changed while it was read; once more")

    with store.lock(KIND, identity):  # others may read what they have put there meanwhile
        if read_or_remove(folder, artifact_manifest) is None:
            spec = trained_by(path)
            about = {"name": path.name, SPEC: spec.canonical_json() if spec else None}
            write_folder(folder, fill, about)
    return identity


def trained_by(path: Path) -> TrialSpec | None:
    """The spec by which this program trained what is in a file; None of a file of others.

    It stands in the metadata of the file, in the manifest beside an artifact of the store, or in
    the description beside an export.
    """
    text = json.dumps(_about_beside(path).get(SPEC))
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
        text = (file.metadata() or {}).get(SPEC, text)
    return _spec_of(text)


def _about_beside(path: Path) -> dict[str, Any]:
    """What a file beside the tensors says of them, if it is of these tensors."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    for beside in (path.parent / ARTIFACT_MANIFEST, path.with_suffix(".json")):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            about: dict[str, Any] = json.loads(beside.read_text())
            if digest in (about.get("sha256"), about.get("files", {}).get(path.name)):
                return about
    return {}


def trained_spec(identity: str, store: Store) -> TrialSpec | None:
    """As ``trained_by``, of kept weights."""
    with contextlib.suppress(DamagedFileError):
        return _spec_of(artifact_manifest(store.folder(KIND, identity)).get(SPEC))
    return None


def _spec_of(told: Any) -> TrialSpec | None:
    # One of a later version, or of a plug-in that is not in use, tells nothing here.
    with contextlib.suppress(UserError, ValueError, TypeError):
        plain = json.loads(told)
        return TrialSpec.build(**(json.loads(plain) if isinstance(plain, str) else plain))
    return None


def hash_of(path: Path) -> str:
    """What stands for a file in specs."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def read(path: Path) -> dict[str, Tensor]:
    """Read a file of weights.

    Raises:
        UserError: there is no such file, it is no safetensors file, or it holds NaN.
    """
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"network.weights: {path} is no safetensors file that can be read ({reason}); files of "
            "torch.save must be converted, since to read them runs what is in them"
        ) from None
    for name, tensor in tensors.items():
        if bool(tensor.isnan().any()):
            raise UserError(
                f"network.weights: {path}: {name} holds NaN; was the training diverged?"
            )
    return tensors


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
    fitted, _ = fit(network, read(folder / FILE), identity, slot.is_frozen)
    network.load_state_dict(fitted, strict=False)
