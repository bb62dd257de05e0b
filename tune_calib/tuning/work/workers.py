"""The kinds of workers: of networks, head batches, and extra evaluations."""

import itertools
import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import load_file

from tune_calib.engine.artifacts import NetworkTraining, has_network, load_network, read_samples
from tune_calib.engine.bank import BankKey, DevelopmentBank, bank_key
from tune_calib.engine.evaluate import (
    SplitLogits,
    bank_logits,
    compute_base_check,
    network_logits,
    read_train_check,
    refuse_better,
)
from tune_calib.engine.execution import describe_execution
from tune_calib.engine.extra import ExtraEvaluation, shifted_bank_key
from tune_calib.engine.head_batch import HEAD_THREADS, HeadBatchTrainer, in_parts
from tune_calib.engine.imports import open_import
from tune_calib.engine.predict import TrainedNetwork
from tune_calib.engine.steps import Stopwatch
from tune_calib.engine.tensors import save_tensors
from tune_calib.errors import DivergedError
from tune_calib.files.documents import seal
from tune_calib.files.paths import atomic_write
from tune_calib.files.store import artifact_manifest
from tune_calib.progress import report_progress
from tune_calib.results.columns import TableName
from tune_calib.results.tables import write_results, write_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import WATCHED
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import PROFILES
from tune_calib.tuning.work.executor import DONE
from tune_calib.tuning.work.worker import Evaluated, TrialResult, Worker, evaluate_trial, summarize

CHECKPOINT = "population.safetensors"
HISTORY = "history.json"


class NetworkWorker(Worker):
    """Trains a network from its last checkpoint, one epoch per step; evaluates all its trials."""

    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        if self.spec.data.imported is not None or self.spec.members:
            return
        self.splits = self.development().to(self.device)
        self.network_run = NetworkTraining(
            self.spec,
            self.store,
            self.splits,
            device=self.device,
            open_bank=self._open_clean_bank if self._needs_bank and self._can_share else None,
        )

    def step(self) -> dict[str, Any]:
        """Train an epoch; the step after the last epoch evaluates and writes the rows."""
        started, imported = time.monotonic(), self.spec.data.imported
        if self.spec.members:
            for member in self.spec.members:
                if (ended := train_missing(self, member)) is not None:
                    return ended
            manifest = self._open_clean_bank().manifest
        elif imported is not None:
            manifest = open_import(artifact_manifest, imported, self.store)
        else:
            try:
                report = self._epoch()
            except DivergedError as error:
                return _write_diverged(self, self.network_run, error)
            if report is not None:
                return {"epoch": len(self.network_run.history), **report}
            manifest = artifact_manifest(self.network_run.artifact)
        last_report = {"epoch": manifest["epoch"], "status": "done", DONE: True}
        if self.trials:
            results = self._evaluate(manifest, started)
            # It may have been trained on another machine before.
            trained_on = {key: manifest.get(key) for key in ("threads", "execution")}
            rows = self.rows(results, **{**trained_on, **manifest.get("machine", {})})
            # Records of samples, for the first trial of the network only, since all share them.
            first, epochs = self.trials[0].spec, len(manifest["history"])
            samples = read_samples(self.store, first.network_id, epochs, spec_hash=first.hash)
            write_results(self.out, self.name, rows, samples=samples)
            last_report |= summarize(results)
        if imported is None and self.spec.network.is_frozen and self._can_share:
            # Its heads have fewer cores. In train mode, one core works in any case.
            for key in self._bank_keys:
                if key.bn_mode == "eval":
                    self.open_bank(key, lambda: self.splits)
        return last_report

    def _epoch(self) -> dict[str, float] | None:
        run = self.network_run
        # The second epoch is profiled, since the first one warms up.
        profiled = min(1, self.spec.network.epochs - 1)
        if not self.provenance.profile or len(run.history) != profiled:
            return run.step()
        watch = Stopwatch()
        report = run.step(watch)
        if report is not None:
            spec = self.spec
            profile = {
                "network": spec.network_id,
                "method": spec.network.method,
                "backbone": spec.network.backbone,
                "dataset": spec.data.dataset,
                "precision": spec.network.precision,
                "seed": spec.network.seed,
                "images": len(self.splits.train),
                "seconds": watch.seconds,
            }
            atomic_write(self.out / PROFILES / f"{spec.network_id}.json", seal(profile))
        return report

    def _evaluate(self, manifest: Mapping[str, Any], started: float) -> list[Evaluated]:
        logits, on_train = self._outputs(manifest), read_train_check(manifest)
        refuse_better(self.spec, self.store, logits)
        base = compute_base_check(logits, on_train)
        predict_s = time.monotonic() - started
        results: list[Evaluated] = []
        for trial in self.trials:
            started = time.monotonic()
            result = evaluate_trial(
                logits,
                trial,
                position=(len(results) + 1, len(self.trials)),
                epoch=manifest["epoch"],
                curves=manifest["history"],
                network_check=on_train if trial.spec.posthoc is None else base,
            )
            own_s: float | None = time.monotonic() - started
            if trial.spec.posthoc is None:  # otherwise another trial trained the network
                own_s = manifest.get("train_s")
                if own_s is not None:
                    own_s += predict_s
            self.save_classifier(trial, result, None, k=0)
            results.append((trial, replace(result, own_s=own_s)))
        return results

    def _outputs(self, manifest: Mapping[str, Any]) -> dict[str, SplitLogits]:
        reads_bank = self.spec.data.imported is not None or bool(self.spec.members)
        if not reads_bank and manifest["regime"] and self._can_share:
            identity = bank_key(self.spec, None).identity
            reads_bank = self._needs_bank or self.store.holds("banks", identity)
        if reads_bank:
            # The bank of clean images has the same numbers as a separate pass.
            return bank_logits(self._open_clean_bank(), self.device)
        trained = load_network(self.spec, self.store, self.device)
        info = self.spec.data.info
        test = None if self.provenance.is_search else self.test_split().to(self.device)
        return network_logits(trained, info, self.splits, test=test)

    @property
    def _can_share(self) -> bool:
        # With another number of threads, last digits would depend on who built the bank. Without a
        # writable store, each trial makes its own pass.
        return self.spec.network.threads == HEAD_THREADS and self.store.is_writable

    @property
    def _bank_keys(self) -> set[BankKey]:
        """Return the keys of the banks of the heads that wait for this Ray trial."""
        return {bank_key(t.spec, t.spec.head) for t in self.dependents if t.spec.head}

    @property
    def _needs_bank(self) -> bool:
        without_head = [t.spec for t in (*self.trials, *self.dependents) if t.spec.head is None]
        is_read = any(spec.network.is_frozen or spec.posthoc for spec in without_head)
        return is_read or bool(self.pooled) or bank_key(self.spec, None) in self._bank_keys

    def _open_clean_bank(self, trained: TrainedNetwork | None = None) -> DevelopmentBank:
        key = bank_key(self.spec, None)
        # Without train, heads would build it again.
        has_heads = key in self._bank_keys
        splits = self.development if self.spec.members else lambda: self.splits
        return self.open_bank(key, splits, with_train=has_heads, trained=trained)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        if hasattr(self, "network_run"):
            self.network_run.save()

    def cleanup(self) -> None:
        vars(self).pop("splits", None)
        if hasattr(self, "network_run"):
            self.network_run.close()


def _write_diverged(worker: Worker, run: NetworkTraining, error: DivergedError) -> dict[str, Any]:
    """Write the rows of all trials of a network that diverged; return the last report."""
    epoch = len(run.history) + 1
    trials = {trial.spec.hash: trial for trial in [*worker.trials, *worker.dependents]}
    result = TrialResult("diverged", epoch, run.history, message=f"network: {error}")
    if trials:  # only pools may need it
        rows = worker.rows([(trial, result) for trial in trials.values()])
        write_results(worker.out, worker.name, rows)
    # Only schedulers read it; rows and studies do not treat it as a result.
    worst = {column("select", name): METRICS[name].worst for name in WATCHED}
    ended = {"status": "diverged", "statuses": {"diverged": len(trials)}, DONE: True}
    return {"epoch": epoch, **worst, **ended}


def train_missing(worker: Worker, spec: TrialSpec) -> dict[str, Any] | None:
    """Train a network that the store lacks; return the last report if it diverges."""
    if has_network(spec, worker.store):
        return None
    development = worker.development(spec)
    run = NetworkTraining(spec, worker.store, development, device=worker.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.network.threads)
    try:
        while run.step() is not None:
            pass
    except DivergedError as error:
        return _write_diverged(worker, run, error)
    finally:
        run.close()
        torch.set_num_threads(threads)
    return None


class HeadWorker(Worker):
    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        self.ended = train_missing(self, self.spec)
        if self.ended is not None:
            return
        # Post-hoc methods after the same head share it.
        groups: dict[HeadSlot, list[PlannedTrial]] = {}
        for trial in self.trials:
            assert trial.spec.head is not None
            groups.setdefault(trial.spec.head, []).append(trial)
        self.heads = list(groups.values())
        self.bank = self._find_bank()
        # Steps train the first part; the last step trains the others.
        first, *self.others = in_parts(list(groups), self.bank)
        self._begin(first)
        # One at a time by default, for schedulers, which need the reports.
        self.epochs_per_step: int = config.get("epochs_per_step", 1)
        self.trained_s: float | None = 0.0

    def _begin(self, slots: list[HeadSlot]) -> None:
        vars(self).pop("trainer", None)
        bank, network, share = self.bank, self.spec.network, self.provenance.gpus
        if slots[0].select != "last":
            bank = bank.for_trial(self.spec)
        self.trainer = HeadBatchTrainer(
            slots, bank, network.seed, self.device, network.execution, share
        )
        self.history: list[dict[str, list[float]]] = []

    def _find_bank(self) -> DevelopmentBank:
        key = bank_key(self.spec, self.spec.head)
        wanted = (self.provenance.store, self.provenance.is_search, key)
        if getattr(self, "opened", None) == wanted:
            return self.bank  # its checksums have been verified
        bank = self.open_bank(key, self.development)
        if self.spec.network.is_frozen:
            refuse_better(self.spec, self.store, bank_logits(bank, self.device))
        self.opened, logits = wanted, bank_logits(bank, torch.device("cpu"))
        self.base = compute_base_check(logits, read_train_check(bank.manifest))
        return bank

    def step(self) -> dict[str, Any]:
        """Train ``epochs_per_step`` epochs; the last step evaluates and writes the rows."""
        if self.ended is not None:
            return self.ended
        started = time.monotonic()
        self._train(self.epochs_per_step)
        if self.trainer.epoch < self.trainer.slot.epochs:
            if self.trained_s is not None:
                self.trained_s += time.monotonic() - started
            # Of the first head, for schedulers of single heads.
            last = self.history[-1].items()
            select = {name: values[0] for name, values in last if name.startswith("select/")}
            return {"epoch": self.trainer.epoch, **select}
        results, trained = self._evaluate_part(0), len(self.trainer.slots)
        for slots in self.others:
            self._begin(slots)
            self._train(slots[0].epochs)
            results += self._evaluate_part(trained)
            trained += len(slots)
        if self.trained_s is not None:
            share = (self.trained_s + time.monotonic() - started) / len(results)
            results = [(trial, replace(result, own_s=share)) for trial, result in results]
        rows = self.rows(
            results,
            population=trained,
            # Seconds to build the bank, perhaps on another machine.
            bank_s=self.bank.manifest.get("made_s"),
            execution=describe_execution(self.trainer.execution, self.trainer.executor),
        )
        write_results(self.out, self.name, rows)
        return {"epoch": self.trainer.epoch, **summarize(results), DONE: True}

    def _train(self, epochs: int) -> None:
        for report in itertools.islice(self.trainer, epochs):
            self.history.append({name: values.tolist() for name, values in report.items()})
            # Means over the heads that did not diverge, to show progress only.
            means = {}
            for name, values in self.history[-1].items():
                if finite := list(filter(math.isfinite, values)):
                    means[name] = sum(finite) / len(finite)
            total = self.trainer.slot.epochs
            report_progress("epoch", self.trainer.epoch, total, metrics=means)

    def _evaluate_part(self, first: int) -> list[Evaluated]:
        """Evaluate the current part, whose first head has the number ``first``."""
        trainer, results = self.trainer, list[Evaluated]()
        trainer.executor.forget()  # its memory is for the evaluation
        logits = bank_logits(self.bank, trainer.device, trainer)
        part = self.heads[first : first + len(trainer.slots)]
        count = sum(map(len, part))
        for k, trials in enumerate(part):
            curves = []
            for report in self.history:
                curves.append({name: values[k] for name, values in report.items()})
            diverged, best = int(trainer.diverged_epoch[k]), int(trainer.best_epoch[k])
            logits_of_head = {name: split.one(k) for name, split in logits.items()}
            evaluate = partial(evaluate_trial, logits_of_head, network_check=self.base)
            for trial in trials:
                if diverged >= 0:
                    message = f"the head's loss of epoch {diverged + 1} is not finite"
                    curves = curves[:diverged]
                    result = TrialResult("diverged", diverged + 1, curves, message=message)
                else:
                    position = len(results) + 1, count
                    result = evaluate(trial, position, epoch=best + 1, curves=curves)
                self.save_classifier(trial, result, trainer, k=k)
                results.append((trial, result))
        return results

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        tensors = {k: v.detach().contiguous() for k, v in self.trainer.state().items()}
        save_tensors(tensors, Path(checkpoint_dir) / CHECKPOINT)
        (Path(checkpoint_dir) / HISTORY).write_text(json.dumps(self.history))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.trainer.load_state(load_file(Path(checkpoint) / CHECKPOINT))
        self.history = json.loads((Path(checkpoint) / HISTORY).read_text())
        self.trained_s = None  # the time before the interruption is unknown

    def cleanup(self) -> None:
        vars(self).pop("trainer", None)


class ExtraWorker(Worker):
    """Executes extra evaluations; consecutive ones of the same network share it."""

    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        self.job = config["job"]
        key = (self.provenance.store, shifted_bank_key(self.spec))
        if getattr(self, "opened", None) != key:
            self.evaluation = ExtraEvaluation(
                self.spec, self.store, self.data_root, device=self.device
            )
            self.opened = key

    def step(self) -> dict[str, Any]:
        """Evaluate every trial, and write all results atomically in one file."""
        shift, resamples, rows = self.job["shift"], self.job["resamples"], []
        trials = zip(self.trials, self.job["measured"], strict=True)
        for number, (trial, measured) in enumerate(trials):
            report_progress("evaluating", number, len(self.trials))
            self.evaluation.refuse_other(trial.spec, measured)
            if shift is None:
                rows += self.evaluation.intervals(trial.spec, resamples)
            else:
                rows += self.evaluation.rows_on(shift, trial.spec, resamples)
        if rows:
            table: TableName = "intervals" if shift is None else "shifts"
            write_table(self.out, table, self.name, content=pa.Table.from_pylist(rows))
        return {"status": "done", DONE: True}


KINDS: dict[str, type[Worker]] = {
    "network": NetworkWorker,
    "head": HeadWorker,
    "extra": ExtraWorker,
}


def begin_job(config: dict[str, Any], last: Worker | None = None) -> Worker:
    """Begin a job; the last worker goes on if it is of the same kind, and shares its resources."""
    kind = KINDS[config["job"]["kind"]]
    if config["run"].get("replay"):
        from tune_calib.tuning.work.replay import ReplayWorker  # imports scikit-learn

        kind = ReplayWorker
    if type(last) is kind:
        last.reset(config)
        return last
    if last is not None:
        last.cleanup()
    return kind(config)
