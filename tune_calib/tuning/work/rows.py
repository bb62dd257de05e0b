"""Result rows of finished trials."""

import json
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tune_calib.engine.evaluate import Evaluation
from tune_calib.engine.machine import machine
from tune_calib.results.tables import NUMBERS, SCHEMA_VERSION
from tune_calib.spec import plugins
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.work.provenance import Provenance


@dataclass(frozen=True)
class TrialResult:
    status: str  # one of ``names.STATUSES``
    epoch: int  # whose weights were evaluated, or in which it diverged; 1-based
    curves: list[dict[str, float]]  # of each epoch
    message: str | None = None  # the reason if it is not done
    evaluation: Evaluation | None = None  # of a trial that is done
    # Seconds of training and evaluation, without setup and waiting: for a head its share of the
    # head batch, for a post-hoc method on the network of another trial only its fit.
    own_s: float | None = None

    @property
    def flags(self) -> str | None:
        """Join the ``names.FLAGS`` with commas; None for a trial that was not evaluated."""
        return None if self.evaluation is None else ",".join(self.evaluation.flags)

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics by column; none for a trial that was not evaluated."""
        return {} if self.evaluation is None else self.evaluation.metrics


def peak_memory(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    if sys.platform == "linux":
        # There ``ru_maxrss`` begins with the size of the process that started this one.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def trial_row(
    trial: PlannedTrial, result: TrialResult, provenance: Provenance, measured: Mapping[str, Any]
) -> dict[str, Any]:
    """Build the row of a trial in the ``trials`` table; ``measured`` are further columns."""
    spec, data = trial.spec, canonical_json(trial.spec.data)
    row = dict.fromkeys(("head", "head_method", "head_seed", "posthoc", "posthoc_method"))
    if (head := spec.head) is not None:
        row |= {"head": canonical_json(head), "head_method": head.method, "head_seed": head.seed}
    if (posthoc := spec.posthoc) is not None:
        row |= {"posthoc": canonical_json(posthoc), "posthoc_method": posthoc.method}
    return {
        **row,
        "schema_version": SCHEMA_VERSION,
        "spec_hash": spec.hash,
        "network_id": spec.network_id,
        "sweep": provenance.sweep,
        "ladder": provenance.ladder,
        "rung": trial.rung,
        "rung_label": trial.label,
        "data": data,
        "network": canonical_json(spec.network),
        "dataset": spec.data.dataset,
        "backbone": spec.network.backbone,
        "network_method": spec.network.method,
        "network_seed": spec.network.seed,
        "split_seed": spec.data.split_seed,
        "calib_samples": result.evaluation.calib_samples if result.evaluation else None,
        "status": result.status,
        "message": result.message,
        "flags": result.flags,
        "epoch": result.epoch,
        "peak_memory_bytes": peak_memory(provenance.device),
        "device": provenance.device,
        "threads": torch.get_num_threads(),
        **machine(),
        "versions": provenance.versions,
        "git_revision": provenance.git_revision,
        "own_s": result.own_s,
        "recipe": provenance.recipe,
        "plugins": plugins_of(spec),
        "data_digest": provenance.digests.get(data),
        "numbers": NUMBERS,
        **measured,
        **result.metrics,
    }


def curve_rows(trial: PlannedTrial, result: TrialResult) -> list[dict[str, Any]]:
    curves = list(enumerate(result.curves, start=1))
    if result.evaluation is not None:
        curves.append((result.epoch, result.evaluation.fitted))
    rows: list[dict[str, Any]] = []
    for epoch, report in curves:
        point = {"spec_hash": trial.spec.hash, "epoch": epoch}
        rows.extend({**point, "name": name, "value": value} for name, value in report.items())
    return rows


def bin_rows(trial: PlannedTrial, result: TrialResult) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if result.evaluation is None:
        return rows
    for split, table in result.evaluation.bins.items():
        for index in range(table.count.shape[-1]):
            row = {
                "spec_hash": trial.spec.hash,
                "split": split,
                "bin": index,
                "lower": float(table.lower[..., index].flatten()[0]),
                "upper": float(table.upper[..., index].flatten()[0]),
                "count": int(table.count[0, index]),
                "confidence": float(table.confidence[0, index]),
                "accuracy": float(table.accuracy[0, index]),
            }
            rows.append(row)
    return rows


def plugins_of(spec: TrialSpec) -> str | None:
    """Return the content hashes of a trial's plug-ins by name as JSON; None without plug-ins."""
    used = {plugin.name: plugin.content for plugin in plugins.used(spec.plugins)}
    return json.dumps(used, sort_keys=True) if used else None
