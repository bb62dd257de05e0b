"""The base class of workers, and the result rows that they write."""

import json
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tune_calib.data.base import Split
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.engine.artifacts import ensure_bank
from tune_calib.engine.bank import BankKey, DevelopmentBank, FeatureBank, draw_splits
from tune_calib.engine.classifier import store_classifier, tensors_of_trial
from tune_calib.engine.evaluate import Evaluation, SplitLogits, evaluate_one
from tune_calib.engine.head_batch import HEAD_THREADS, HeadBatchTrainer
from tune_calib.engine.machine import machine, require_environment, set_switches
from tune_calib.errors import DivergedError, RefusedError
from tune_calib.files.paths import parse_path
from tune_calib.files.store import Store
from tune_calib.progress import report_progress
from tune_calib.results.columns import TableName
from tune_calib.results.tables import NUMBERS, SCHEMA_VERSION
from tune_calib.spec import plugins
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.methods import METHODS
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.folder import Provenance


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
        return None if self.evaluation is None else ",".join(self.evaluation.flags)

    @property
    def metrics(self) -> dict[str, float]:
        return {} if self.evaluation is None else self.evaluation.metrics


Evaluated = tuple[PlannedTrial, TrialResult]


class Worker:
    """Executes jobs, given as ``job`` (``Job.config``) and ``run`` (a ``Provenance``)."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.resets = 0
        try:
            self.setup(config)
        except BaseException:
            self.cleanup()
            raise

    def setup(self, config: dict[str, Any]) -> None:
        self.started = time.monotonic()
        self.provenance = Provenance(**config["run"])
        # Before any registry is read; the process may have used others before.
        plugins.use(Plugin(**plain) for plain in self.provenance.plugins)
        job = config["job"]
        self.name: str = job["name"]
        self.out = parse_path(self.provenance.out)
        self.device = torch.device(self.provenance.device)
        self.store = Store(parse_path(self.provenance.store))
        root = self.provenance.data_root
        self.data_root = Path(root) if root else None
        self.trials = list(map(_planned, job["trials"]))
        self.dependents = list(map(_planned, job.get("dependents", [])))
        self.pooled = list(map(_planned, job.get("pooled", [])))
        require_environment(self.spec)
        # In each trial, since the one before may have set other switches.
        set_switches(self.spec.network, self.device)
        # The last digits depend on the number of threads.
        threads = HEAD_THREADS if job["kind"] == "head" else self.spec.network.threads
        torch.set_num_threads(threads)

    def reset(self, config: dict[str, Any]) -> None:
        self.cleanup()
        self.resets += 1
        self.setup(config)

    def step(self) -> dict[str, Any]:
        """Continue the trial; its last report has ``DONE``."""
        raise NotImplementedError

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the state that the store does not contain."""

    def load_checkpoint(self, checkpoint: Any) -> None: ...

    def cleanup(self) -> None: ...

    @property
    def spec(self) -> TrialSpec:
        """Return a spec with the network of this Ray trial."""
        return (self.trials or self.dependents or self.pooled)[0].spec

    def development(self, spec: TrialSpec | None = None) -> Development:
        """Load the splits for training and selection; refuse another copy than the driver's."""
        data = (spec or self.spec).network_data
        development = load_development(data, self.data_root, self.store.images)
        key = canonical_json(self.spec.data)
        of_driver = self.provenance.digests.get(key)
        if of_driver not in (None, development.digest):
            raise RefusedError(
                f"{data.dataset}: `data_root` {self.data_root} of this node "
                f"({platform.node()}) contains a different copy ({development.digest}) from that "
                f"of the driver ({of_driver}); give every node the same files"
            )
        return development

    def test_split(self) -> Split:
        """Load the test split for the final evaluation; a search may not read it."""
        if self.provenance.is_search:
            raise ValueError("a search tried to read the test split")
        return load_test(self.spec.data, self.data_root, self.store.images)

    def open_bank(
        self, key: BankKey, development: Callable[[], Development], **options: Any
    ) -> DevelopmentBank:
        """Open or build a bank by ``ensure_bank``; that of a search has no test split."""
        kind = DevelopmentBank if self.provenance.is_search else FeatureBank

        def load_splits() -> tuple[Development, Split | None]:
            return development(), None if self.provenance.is_search else self.test_split()

        return ensure_bank(kind, self.spec, key, self.store, load_splits, self.device, **options)

    def save_classifier(
        self, trial: PlannedTrial, result: TrialResult, trainer: HeadBatchTrainer | None, k: int
    ) -> None:
        """Save the classifier of a done trial; a search and the draws of splits have too many."""
        evaluation = result.evaluation
        if evaluation and not (trial.spec.is_brief or self.provenance.is_search):
            tensors = tensors_of_trial(trainer, k, evaluation.transform)
            store_classifier(self.store, trial.spec, tensors, metrics=evaluation.metrics)

    def rows(
        self, results: Sequence[Evaluated], **measured_otherwise: Any
    ) -> dict[TableName, list[dict[str, Any]]]:
        measured = {
            "wall_s": time.monotonic() - self.started,
            "population": len(results),
            "actor_resets": self.resets,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            **measured_otherwise,
        }
        tables: dict[TableName, list[dict[str, Any]]] = {"trials": [], "curves": [], "bins": []}
        for trial, result in results:
            row = trial_row(trial, result, self.provenance, measured=measured)
            tables["trials"].append(row)
            tables["curves"].extend(curve_rows(trial, result))
            tables["bins"].extend(bin_rows(trial, result))
        return tables


def _planned(plain: Mapping[str, Any]) -> PlannedTrial:
    return PlannedTrial(TrialSpec.build(**plain["spec"]), plain["rung"], plain["label"])


def evaluate_trial(
    logits: dict[str, SplitLogits],
    trial: PlannedTrial,
    position: tuple[int, int],  # its number and the number of all trials, for progress events
    epoch: int,
    curves: list[dict[str, float]],
    network_check: Mapping[str, float],
) -> TrialResult:
    """Evaluate a trial from the logits of its classifier before its post-hoc method."""
    step = "evaluating"
    if trial.spec.posthoc is not None:
        step = f"fitting {METHODS[trial.spec.posthoc.method].title}"
    report_progress(step, *position)
    if not trial.spec.reads_features:  # they may be large, and draws copy them
        logits = {name: replace(split, features=None) for name, split in logits.items()}
    splits = draw_splits(logits, trial.spec)
    try:
        evaluation = evaluate_one(splits, trial.spec.posthoc, network_check, trial.spec.is_brief)
    except DivergedError as error:
        return TrialResult("diverged", epoch, curves, message=str(error))
    if evaluation is None:
        return TrialResult("diverged", epoch, curves, message="the logits are not finite")
    return TrialResult("done", epoch, curves, evaluation=evaluation)


def summarize(results: Sequence[Evaluated]) -> dict[str, Any]:
    """Return the final report for schedulers and searchers: on ``select``, never on ``test``."""
    statuses = dict(Counter(result.status for _, result in results))  # for the screen
    result = results[0][1]
    select = {name: value for name, value in result.metrics.items() if name.startswith("select/")}
    return {"status": result.status, "flags": result.flags or "", "statuses": statuses, **select}


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
    head, posthoc = spec.head, spec.posthoc
    return {
        "head": head and canonical_json(head),
        "head_method": head and head.method,
        "head_seed": head and head.seed,
        "posthoc": posthoc and canonical_json(posthoc),
        "posthoc_method": posthoc and posthoc.method,
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
        "network_method": spec.network.method_name,
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
    bins = {} if result.evaluation is None else result.evaluation.bins
    for split, table in bins.items():
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
