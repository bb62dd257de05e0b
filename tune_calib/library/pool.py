"""Pools of networks in memory: their average as one calibrated network, and its files."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sklearn.base import clone
from torch import Tensor, nn

from tune_calib.engine.classifier import Classifier, tensors_of_trial
from tune_calib.engine.predict import predict_module
from tune_calib.errors import UserError
from tune_calib.files.documents import hash_bytes
from tune_calib.files.paths import refuse_existing
from tune_calib.library.arrays import find_classes
from tune_calib.library.calibrated import CalibratedNetwork, files_of, write_calibrated
from tune_calib.library.estimators import PostHocEstimator
from tune_calib.library.export import refuse_unstorable
from tune_calib.library.onnx_file import write_onnx
from tune_calib.metrics.validation import logits_of, number_labels
from tune_calib.spec import plugins
from tune_calib.spec.slots.pool import Average
from tune_calib.spec.trial import TrialSpec


def calibrate_pool(
    networks: Sequence[nn.Module],
    X: Any,
    y: Any,
    method: PostHocEstimator | None,
    *,
    posthoc: PostHocEstimator | None = None,
    average: Average = "probabilities",
    classes: Any = None,
) -> CalibratedNetwork:
    """Average networks of one data set, and calibrate the average, as trials of pools do.

    Args:
        networks: at least two torch modules that return logits (N, C), or scores (N,) of two
            classes. They are copied.
        X: N samples that no network was trained on, as all networks take them.
        y: labels (N,), integers from 0 to C - 1, or C other values whose sorted order is that of
            the logits.
        method: post-hoc method that is fitted to the average, e.g. ``TemperatureScaling()``; None
            for none.
        posthoc: post-hoc method that is fitted to each network before the average.
        average: ``probabilities``, or ``logits``.
        classes: the classes (C,) in the order of the logits, or their number C.

    Returns:
        A module: ``pool(X)`` returns calibrated probabilities (N, C), float64, and
        ``pool.logits(X)`` their logits.

    Raises:
        UserError: there are fewer than two networks, they have different classes, or a method
            cannot be stored.
        ValueError: the labels do not match the classes, or an output is not finite or no logits.
    """
    if len(networks) < 2:
        raise UserError(f"a pool needs at least two networks, got {len(networks)}")
    outputs = [logits_of(predict_module(network, X)).float() for network in networks]
    shapes = [tuple(logits.shape) for logits in outputs]
    if len(set(shapes)) > 1:
        raise UserError(f"the networks of a pool must have the same classes, got logits {shapes}")
    names = find_classes(y, outputs[0].shape[1], classes)
    labels = number_labels(y, len(outputs[0]), names)
    records = []
    for logits in outputs:
        digest = hash_bytes(logits.cpu().numpy().data, labels.numpy().data)[:16]
        record = {"digest": digest, "classes": len(names), "outputs": "logits", "is_cut": False}
        sizes = {"width": 0, "train": 0, "select": 0, "calib": len(labels), "test": 0}
        records.append(record | sizes)
    pool = {"members": records, "average": average, "posthoc": _slot(posthoc)}
    spec = TrialSpec.build(
        data={"dataset": "imported", "imported": records[0]},
        network={"backbone": "imported", "epochs": 0, "pool": pool},
        posthoc=_slot(method),
    )
    refuse_unstorable(spec)
    members, calibrated = [], []
    for part, network, logits in zip(spec.members, networks, outputs, strict=True):
        classifier = _fit(posthoc, part, logits, y, classes)
        calibrated.append(classifier(logits[:, :0], logits)[0])
        members.append(CalibratedNetwork(part, classifier, None))
        members[-1].network = copy.deepcopy(network).eval()
    pooled = CalibratedNetwork(spec, Classifier(None, None, {}), None, members)
    pooled.classifier = _fit(method, spec, pooled.average(calibrated), y, classes)
    pooled.classes = tuple(map(str, names.tolist()))
    return pooled


def _slot(method: PostHocEstimator | None) -> dict[str, Any] | None:
    if method is None:
        return None
    if not isinstance(method, PostHocEstimator):
        raise UserError(f"give a post-hoc method, e.g. TemperatureScaling(), not {method!r}")
    return {"method": method.info.name, "params": method.settings}


def _fit(
    method: PostHocEstimator | None, spec: TrialSpec, logits: Tensor, y: Any, classes: Any
) -> Classifier:
    if method is None:
        return Classifier(None, None, {})
    transform = clone(method).fit(logits, y, classes=classes, outputs="logits").transform_
    return Classifier(None, spec.posthoc, tensors_of_trial(None, 0, transform))


def save_calibrated(
    network: CalibratedNetwork, file: str | Path, samples: Tensor | None = None
) -> None:
    """Write NAME.safetensors and NAME.json, which ``load_calibrated`` reads.

    Args:
        network: the result of ``calibrate_pool``.
        file: NAME.safetensors or NAME; existing files are refused.
        samples: some inputs; with them, NAME.onnx is written and checked too.
    """
    paths = files_of(file)
    for path in paths:
        refuse_existing(path)
    if samples is not None:
        write_onnx(copy.deepcopy(network).cpu(), paths[2], samples=samples.cpu())
    used = {plugin.name: plugin.content for plugin in plugins.used(network.spec.plugins)}
    entries: dict[str, Any] = {"samples": 0, "metrics": {}, "flags": [], "trained_on": {}}
    write_calibrated(network, file, {**entries, "plugins": used, "circumstances": {}})
