"""What files say of a job, taken into what is asked: from then on no path decides a number."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tune_calib.console import echo
from tune_calib.engine import weights
from tune_calib.engine.fitting import fit
from tune_calib.engine.given import refuse_seen
from tune_calib.engine.imports import read_record
from tune_calib.engine.network import build
from tune_calib.engine.store import Store
from tune_calib.errors import UserError
from tune_calib.methods._base import NetworkMethod
from tune_calib.paths import Place, own_path
from tune_calib.spec.asked import Asked
from tune_calib.spec.backbones import BACKBONES, BackboneInfo
from tune_calib.spec.datasets import NORMS, Constants
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.data import OWN_NORM, DataSlot
from tune_calib.spec.trial import TrialSpec


def taken_in(asked: Asked, data_root: Path | None, at: Place, is_dry: bool = False) -> Asked:
    """The same with what the files of its data set say, and with the hash of its weights.

    Of imported data, with what their name means in the store.

    Args:
        asked: what is asked for.
        data_root: where data sets lie.
        at: the store; the file of ``network.weights`` is copied to it.
        is_dry: copy nothing.

    Raises:
        UserError: a file is not there, damaged, or of another network; a given network saw the
            images that are held out, or nobody knows by what its pixels are normalised.
    """
    store = Store(at)
    data: Mapping[str, Any] = asked.given.get("data", {})
    if isinstance(name := data.get("imported"), str):
        found = read_record(name, store).model_dump()
        return replace(asked, given={**asked.given, "data": {**data, "imported": found}})
    asked = asked.described(data_root, store.images)
    network: Mapping[str, Any] = asked.given.get("network", {})
    path = network.get("weights")
    if not isinstance(path, str) or weights.is_hash(path):
        return asked
    file = own_path(path)
    tensors = weights.read(file)
    made = weights.trained_by(file)
    network = {**network, "weights": weights.hash_of(file)}
    asked = replace(asked, given={**asked.given, "network": network})
    if asked.is_given:
        asked = _normalised(asked, made)
        _refuse_other_logits(file, tensors, made)
    spec = asked.spec()
    if made is not None:
        refuse_seen(made, spec.data)
    # Before the file is copied: one that does not fit leaves no trace.
    untrained, _ = build(spec, samples=2)
    if told := fit(untrained, tensors, str(file), asked.is_given)[1]:
        echo(f"{file}: {told}", err=True)
    if any(name.startswith("classifier.") for name in tensors):
        echo(f"{file}: of this export the network is taken, with its own head", err=True)
    if not is_dry:
        weights.keep(file, store)
    return asked


def _refuse_other_logits(file: Path, tensors: Mapping[str, Tensor], made: TrialSpec | None) -> None:
    """Refuse a network of this program whose method, and not its head, makes the logits."""
    if not any(name.startswith("method.") for name in tensors):
        return
    own: type[NetworkMethod] | None = METHODS[made.network.method].implementation if made else None
    if own is None or own.forward is not NetworkMethod.forward:
        raise UserError(
            f"network.weights: {file} holds what its training method makes logits by, beside the "
            "network; give a network whose logits are those of its last layer"
        )


def _normalised(asked: Asked, made: TrialSpec | None) -> Asked:
    """With the constants of a given network, which are told in one way, whatever was written."""
    plain = _with_norm(asked, None)
    norm = asked.given.get("data", {}).get("norm")
    if norm is None:
        norm = _constants(made.data) if made else _norm_of_backbone(plain)
    wanted, own = (_constants(each.spec().data) for each in (_with_norm(asked, norm), plain))
    if wanted == own:
        return plain
    name = next((name for name, known in NORMS.items() if known == wanted), None)
    return _with_norm(asked, name or wanted)


def _with_norm(asked: Asked, norm: str | Constants | None) -> Asked:
    data = {key: value for key, value in asked.given.get("data", {}).items() if key != "norm"}
    told = {} if norm is None else {"norm": norm}
    return replace(asked, given={**asked.given, "data": {**data, **told}})


def _constants(data: DataSlot) -> Constants:
    info = data.info
    return info.mean, info.std


def _norm_of_backbone(asked: Asked) -> str | Constants:
    """What weights of others for a backbone expect, as far as that is known."""
    spec = asked.spec()
    info, backbone = spec.data.info, spec.network.backbone
    record: BackboneInfo = BACKBONES[backbone]
    norm = record.norm if info.size >= record.norm_from else None
    constants = NORMS[norm] if isinstance(norm, str) else norm
    if constants is None or len(constants[0]) != info.channels:
        raise UserError(
            f"nobody knows by what a given {backbone} normalises its pixels: take `norm` "
            f"{OWN_NORM} (the constants of {info.name}), {', '.join(NORMS)}, or "
            "[[means], [standard deviations]]"
        )
    return constants
