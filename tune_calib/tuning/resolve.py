"""Resolve the files that a request names, so that no number depends on a path."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tune_calib.console import echo
from tune_calib.engine import weights
from tune_calib.engine.evaluate import refuse_seen
from tune_calib.engine.imports import read_record, read_records
from tune_calib.engine.network import build
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, expand_path
from tune_calib.files.store import Store
from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.backbones import BACKBONES, BackboneInfo
from tune_calib.spec.datasets import NORMS, Constants
from tune_calib.spec.methods import METHODS
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.slots.data import OWN_NORM, DataSlot
from tune_calib.spec.trial import TrialSpec


def resolve_files(
    resolved: ResolvedRequest, data_root: Path | None, at: AnyPath, is_dry: bool = False
) -> ResolvedRequest:
    """Replace the paths of data, imported data and weights by contents; store the weights."""
    store = Store(at)
    data: Mapping[str, Any] = resolved.overrides.get("data", {})
    if isinstance(name := data.get("imported"), str):
        if any(wildcard in name for wildcard in "*?["):
            records = read_records(name, store)
            imports = {name: record.model_dump() for name, record in records.items()}
            return replace(resolved, imports=imports)
        data = {**data, "imported": read_record(name, store).model_dump()}
        return replace(resolved, overrides={**resolved.overrides, "data": data})
    resolved = resolved.with_scanned_data(data_root, store.images)
    network: Mapping[str, Any] = resolved.overrides.get("network", {})
    path = network.get("weights")
    if not isinstance(path, str) or re.fullmatch("[0-9a-f]{16}", path):  # a hash is no path
        return resolved
    file = expand_path(path)
    tensors = weights.read(file)
    trained_by = weights.trained_by(file)
    network = {**network, "weights": weights.hash_of(file)}
    resolved = replace(resolved, overrides={**resolved.overrides, "network": network})
    if resolved.is_frozen:
        resolved = _normalised(resolved, trained_by)
        # In a network of this program, the method may compute the logits instead of the head.
        has_own_logits = True
        if trained_by is not None:
            method: Any = METHODS[trained_by.network.method].implementation
            has_own_logits = method.forward is not NetworkMethod.forward
        if has_own_logits and any(name.startswith("method.") for name in tensors):
            raise UserError(
                f"network.weights: in {file} the training method computes the logits, not the last "
                "layer of the network; name a network whose last layer computes them"
            )
    spec = resolved.spec()
    if trained_by is not None:
        refuse_seen(trained_by, spec.data)
    # Before the file is copied, so that a wrong file leaves no trace.
    untrained, _ = build(spec, samples=2)
    _, remark = weights.match_weights(untrained, tensors, str(file), is_frozen=resolved.is_frozen)
    if remark:
        echo(f"{file}: {remark}", err=True)
    if any(name.startswith("classifier.") for name in tensors):
        echo(f"{file}: only the network of this export is used, with its own head", err=True)
    if not is_dry:
        weights.store_weights(file, store)
    return resolved


def _normalised(resolved: ResolvedRequest, trained_by: TrialSpec | None) -> ResolvedRequest:
    plain = _with_norm(resolved, None)
    norm = resolved.overrides.get("data", {}).get("norm")
    if norm is None and trained_by is not None:
        norm = _constants(trained_by.data)
    elif norm is None:  # that of the published weights of the backbone
        spec = plain.spec()
        info, backbone = spec.data.info, spec.network.backbone
        record: BackboneInfo = BACKBONES[backbone]
        if info.size >= record.norm_from:
            norm = record.norm
        if isinstance(norm, str):
            norm = NORMS[norm]
        if norm is None or len(norm[0]) != info.channels:
            raise UserError(
                f"the normalisation that this {backbone} expects is unknown: set `norm` to "
                f"{OWN_NORM} (the constants of {info.name}), {', '.join(NORMS)}, or "
                "[[means], [standard deviations]]"
            )
    wanted = _constants(_with_norm(resolved, norm).spec().data)
    if wanted == _constants(plain.spec().data):
        return plain
    for name, constants in NORMS.items():
        if constants == wanted:
            return _with_norm(resolved, name)
    return _with_norm(resolved, wanted)


def _with_norm(resolved: ResolvedRequest, norm: str | Constants | None) -> ResolvedRequest:
    data = dict(resolved.overrides.get("data", {}))
    data.pop("norm", None)
    if norm is not None:
        data["norm"] = norm
    return replace(resolved, overrides={**resolved.overrides, "data": data})


def _constants(data: DataSlot) -> Constants:
    return data.info.mean, data.info.std
