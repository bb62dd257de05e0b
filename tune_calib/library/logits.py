"""Export of the logits of all trials of a run, as an HDF5 file in the layout of CalArena.

A trial is a model; its arrays are ``DATASET/MODEL/ROLE_SPLIT``.
"""

import errno
import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tune_calib.data.arrays import import_h5py
from tune_calib.engine.extra import ExtraEvaluation, shifted_bank_key
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import seal
from tune_calib.files.paths import AnyPath, atomic_write, expand_path, refuse_existing, replacing
from tune_calib.files.store import Store
from tune_calib.library.export import Row, describe_trial, read_done, set_up
from tune_calib.progress import report_progress
from tune_calib.results.folders import is_search
from tune_calib.results.selection import EVALUATION
from tune_calib.results.tables import read_slots
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import format_count

VERSION = 1  # of the data card
_LAYOUT = (
    "DATASET/MODEL/ROLE_SPLIT: logits (after the post-hoc method, if any), probas (their softmax; "
    "of two classes, that of the second), labels, indices (positions in the data set; an import is "
    "numbered from select to test) and digest (SHA-256 of these four)"
)
_SPLITS = {"select": "select", "calib": "cal", "test": "test"}
_RESERVE = 2**24  # bytes on disk for the tables of HDF5

_Models = dict[str, dict[str, Any]]


def export_logits(out: AnyPath, store: AnyPath, data_root: Path | None, file: str) -> str:
    """Write the logits of all finished trials of a run, and return a description of the files."""
    target = expand_path(file)
    if target.suffix not in (".h5", ".hdf5"):
        raise UserError(f"{file} must end in .h5 or .hdf5")
    if is_search(out):
        raise UserError(
            f"{out} is a search, which does not read test; first run: tune-calib evaluate {out}, "
            f"then export {out / EVALUATION}"
        )
    rows, h5py = read_done(out, is_required=True), import_h5py(target)
    card, index = target.with_suffix(".json"), target.with_name(f"{target.stem}-experiments.csv")
    for path in (target, card, index):
        refuse_existing(path)
    # The lock of h5py would meet that of ``replacing``.
    with replacing(target) as partial, h5py.File(partial.name, "w", locking=False) as arrays:
        models = _write_models(arrays, rows, Store(store), data_root)
    content = {"format": "tune-calib logits", "version": VERSION, "layout": _LAYOUT}
    atomic_write(card, seal({**content, "models": models}))
    # The index that CalArena runs: the trials whose ``calib`` no method has used.
    lines = ["dataset,model,cal_size,test_size,n_classes\n"]
    for name, model in models.items():
        if model["spec"].get("posthoc") is None:
            sizes = f"{model['samples']['cal']},{model['samples']['test']},{model['classes']}"
            lines.append(f"{name.replace('/', ',')},{sizes}\n")
    atomic_write(index, "".join(lines).encode())
    return f"{format_count(len(models), 'trial')} written: {target}, {card}, {index}"


def _write_models(arrays: Any, rows: list[Row], store: Store, data_root: Path | None) -> _Models:
    models: _Models = {}
    evaluation: ExtraEvaluation | None = None
    # The trials of a network follow each other, so that its bank is opened once.
    rows = list({row["spec_hash"]: row for row in rows}.values())
    rows.sort(key=lambda row: str(row["network_id"]))
    for number, row in enumerate(rows):
        report_progress("exporting logits", number, len(rows))
        spec = TrialSpec.build(**read_slots(row))
        device = set_up(row, spec)
        if evaluation is None or evaluation.key != shifted_bank_key(spec):
            evaluation = ExtraEvaluation(spec, store, data_root, device)
        record = spec.data.import_record
        dataset = f"imported-{record.digest}" if record else spec.data.dataset
        # Only characters of names of imports, so that the file can be imported again.
        label = re.sub(r"[^A-Za-z0-9_.-]+", "_", row["rung_label"])[:100]
        name = f"{dataset}/{label}-{spec.hash}"
        try:
            models[name] = _write_model(arrays.create_group(name), row, spec, evaluation)
        except DamagedFileError as error:
            raise UserError(f"{error}; give the `store` of the run") from None
    return models


def _write_model(
    group: Any, row: Row, spec: TrialSpec, evaluation: ExtraEvaluation
) -> dict[str, Any]:
    evaluation.refuse_other(spec, row)
    indices = evaluation.indices(spec)
    samples, digests = {}, {}
    for split, features in evaluation.bank.for_trial(spec).evaluated().items():
        logits = evaluation.calibrated(spec, features).cpu()
        probabilities = logits.softmax(-1)
        if logits.shape[1] == 2:
            probabilities = probabilities[:, 1]
        tensors = {"logits": logits.float(), "probas": probabilities.float()}
        tensors |= {"labels": features.labels, "indices": indices[split]}
        size = sum(tensor.nbytes for tensor in tensors.values())
        # On a full disk, HDF5 cannot close its file, and ends the process.
        if shutil.disk_usage(group.file.filename).free < size + _RESERVE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        digest, suffix = hashlib.sha256(), _SPLITS[split]
        for role, tensor in tensors.items():
            values = tensor.contiguous().numpy()
            group[f"{role}_{suffix}"] = values
            digest.update(values.data)
        samples[suffix], digests[suffix] = len(logits), digest.hexdigest()
        group[f"digest_{suffix}"] = np.array(digests[suffix], "S")
    return {
        "trial": spec.hash,
        "label": row["rung_label"],
        "spec": spec.model_dump(mode="json"),
        "data_digest": row["data_digest"],
        **describe_trial(row, spec, None),
        "classes": spec.data.info.classes,
        "samples": samples,
        "digests": digests,
    }
