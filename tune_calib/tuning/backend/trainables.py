"""Ray Tune Trainables: thin wrappers of the engine, reusable actors, no mathematics.

``trainable("mac_cal")`` gives the class bound to a method, for use in any ``tune.Tuner``::

    tune.Tuner(
        trainable("mac_cal"),
        param_space={
            "head": {"gamma": tune.uniform(0.7, 1.0)},
            "run": {"out": "/tmp/own/results", "store": "/tmp/own/store"},
        },
    )

Settings that are not given are those that the command line would take (``settings.effective``).
"""

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from ray import tune
from safetensors.torch import load_file, save_file

from tune_calib import plugins
from tune_calib.data.base import info_of
from tune_calib.engine.artifacts import (
    NetworkTraining,
    ensure_bank,
    ensure_development_bank,
    has_network,
    load_network,
)
from tune_calib.engine.bank import DevelopmentBank, bank_key
from tune_calib.engine.evaluate import (
    Evaluation,
    SplitLogits,
    bank_logits,
    evaluate_one,
    network_logits,
    population_logits,
    regime_of_bank,
    regime_of_base,
    regime_of_images,
    regime_of_train,
)
from tune_calib.engine.given import refuse_better
from tune_calib.engine.imports import manifest_of_import
from tune_calib.engine.parts import in_parts
from tune_calib.engine.population import HEAD_THREADS, PopulationTrainer
from tune_calib.engine.samples import read_epochs
from tune_calib.engine.steps import Stopwatch
from tune_calib.engine.store import artifact_manifest
from tune_calib.errors import DivergedError
from tune_calib.ladder import PlannedTrial
from tune_calib.names import METRICS, WATCHED, column
from tune_calib.places import place
from tune_calib.registry import METHODS
from tune_calib.slots.head import HeadSlot
from tune_calib.spec import canonical_json
from tune_calib.tuning.backend.rows import (
    TrialResult,
)
from tune_calib.tuning.backend.spec_trainable import SpecTrainable
from tune_calib.tuning.profile import profiled_epoch, write_profile

CHECKPOINT = "population.safetensors"
HISTORY = "history.json"


class NetworkTrainable(SpecTrainable):
    """Trains one network, an epoch a step, from its own last checkpoint, and evaluates it."""

    def setup(self, config: dict[str, Any]) -> None:
        """Wait for the network's lock, then read its artifact or last checkpoint."""
        super().setup(config)
        if self.spec.data.imported is not None:
            return
        self.splits = self.development().to(self.device)
        self.network_run = NetworkTraining(self.spec, self.store, self.splits, self.device)

    def _threads(self) -> int:
        return self.spec.network.threads

    def step(self) -> dict[str, Any]:
        """Train one epoch; the step behind the last one evaluates and writes the rows."""
        if self.spec.data.imported is not None:
            return self._end()
        try:
            report = self._epoch()
        except DivergedError as error:
            return self._end_diverged(str(error))
        if report is not None:
            return {"epoch": len(self.network_run.history), **report}
        return self._end()

    def _epoch(self) -> dict[str, float] | None:
        run = self.network_run
        if not self.circumstances.profile or len(run.history) != profiled_epoch(
            self.spec.network.epochs
        ):
            return run.step()
        watch = Stopwatch()
        report = run.step(watch)
        if report is not None:
            out = place(self.circumstances.out)
            write_profile(out, self.spec, len(self.splits.train), watch.seconds)
        return report

    def _end_diverged(self, message: str) -> dict[str, Any]:
        history = self.network_run.history
        epoch = len(history) + 1
        told = {trial.spec.hash: trial for trial in [*self.trials, *self.dependents]}
        result = TrialResult("diverged", epoch, history, message=f"network: {message}")
        self.write([(trial, result) for trial in told.values()])
        # A scheduler compares with it at this epoch; neither row nor study takes it for a result.
        worst = {column("select", name): METRICS[name].worst for name in WATCHED}
        return {"epoch": epoch, **worst, "status": "diverged", tune.result.DONE: True}

    def _end(self) -> dict[str, Any]:
        imported = self.spec.data.imported
        about = (
            artifact_manifest(self.network_run.artifact)
            if imported is None
            else manifest_of_import(imported, self.store)
        )
        if not self.trials:
            return {"epoch": about["epoch"], "status": "done", tune.result.DONE: True}
        started = time.monotonic()
        logits, on_train = self._outputs(about)
        refuse_better(self.spec, self.store, logits)
        base = regime_of_base(logits, on_train)
        predict_s = time.monotonic() - started
        results = []
        for trial in self.trials:
            started = time.monotonic()
            known = base if trial.spec.posthoc is not None else on_train
            result = _result(logits, trial, about["epoch"], about["history"], known)
            own_s: float | None = time.monotonic() - started
            if trial.spec.posthoc is None:  # else the network is that of another trial
                trained_s = about.get("train_s")
                own_s = None if trained_s is None else trained_s + predict_s
            self.keep(trial, result, None, 0)
            results.append((trial, replace(result, own_s=own_s)))
        # Where it was trained, which may have been elsewhere and earlier.
        trained_on = {"threads": about.get("threads"), **about.get("machine", {})}
        self.write(results, self._samples(len(about["history"])), trained_on)
        return {"epoch": about["epoch"], **_summary(results), tune.result.DONE: True}

    def _outputs(self, about: Mapping[str, Any]) -> tuple[dict[str, SplitLogits], dict[str, float]]:
        """Logits of the network's own head, and its regime on train.

        What further post-hoc trials of the network will ask for is read from its clean bank, which
        the first of them makes: the numbers are those of a pass of their own.
        """
        if self.spec.data.imported is not None:
            return bank_logits(self._clean_bank(), self.device), regime_of_train(about)
        needs_bank = self.spec.network.is_given or any(t.spec.posthoc for t in self.trials)
        # On other threads than a bank's, last digits would depend on who made it.
        is_alike = self._threads() == HEAD_THREADS
        # Where nothing can be kept, each makes its own pass.
        if needs_bank and is_alike and about.get("regime") and self.store.is_writable:
            return bank_logits(self._clean_bank(), self.device), regime_of_train(about)
        trained = load_network(self.spec, self.store, self.device)
        info = info_of(self.spec.data)
        test = None if self.circumstances.is_search else self.test_split().to(self.device)
        logits = network_logits(trained, info, self.splits, test)
        return logits, regime_of_train(about) or regime_of_images(trained, info, self.splits)

    def _clean_bank(self) -> DevelopmentBank:
        key = bank_key(self.spec, None)
        # Those of heads wait for this Ray trial, and would make the bank again.
        keys = {bank_key(t.spec, t.spec.head) for t in self.dependents if t.spec.head}
        needs = (self.spec, key, self.store)
        if self.circumstances.is_search:
            return ensure_development_bank(*needs, lambda: self.splits, self.device, key in keys)
        splits = lambda: (self.splits, self.test_split())  # noqa: E731
        return ensure_bank(*needs, splits, self.device, key in keys)

    def _samples(self, epochs: int) -> pa.Table:
        """Records of single samples, for the first of the network's own trials: all share them."""
        spec = self.trials[0].spec
        return read_epochs(self.store, spec.network_id, epochs, spec.hash)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing to add: the run keeps its checkpoint in the store under its own hash."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """The run found its own checkpoint in ``setup``."""

    def cleanup(self) -> None:
        """Free the lock of the network."""
        if hasattr(self, "network_run"):
            self.network_run.close()


class HeadTrainable(SpecTrainable):
    """Trains a population of heads on the feature bank of their network.

    ``epochs_per_step`` of the configuration says how many epochs a step takes: one for a
    scheduler that watches (the default), all of them where a report costs more than it tells.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Open the bank (train the network and build it, if that is left to do)."""
        super().setup(config)
        self.heads = _by_head(self.trials)
        self.bank = self._bank()
        # Watched is the first part; the others are trained at the end.
        first, *self.others = in_parts([slot for slot, _ in self.heads], self.bank)
        self._begin(first)
        self.epochs_per_step: int = config.get("epochs_per_step", 1)
        self.trained_s: float | None = 0.0

    def _begin(self, slots: list[HeadSlot]) -> None:
        """Take up a part of the population; the one before is given up first."""
        vars(self).pop("trainer", None)
        seed = self.spec.network.seed
        self.trainer = PopulationTrainer(slots, self.bank, seed, self.device)
        self.history: list[dict[str, list[float]]] = []

    def _threads(self) -> int:
        return HEAD_THREADS

    def _bank(self) -> DevelopmentBank:
        key = bank_key(self.spec, self.spec.head)
        wanted = (self.circumstances.store, self.circumstances.is_search, key)
        if getattr(self, "opened", None) == wanted:
            return self.bank  # its checksums were read once
        if not has_network(self.spec, self.store):
            self._train_network()
        if self.circumstances.is_search:
            bank = ensure_development_bank(
                self.spec, key, self.store, self.development, self.device
            )
        else:
            splits = lambda: (self.development(), self.test_split())  # noqa: E731
            bank = ensure_bank(self.spec, key, self.store, splits, self.device)
        if self.spec.network.is_given:
            refuse_better(self.spec, self.store, bank_logits(bank, self.device))
        self.opened = wanted
        self.base = regime_of_bank(bank, key)
        return bank

    def _train_network(self) -> None:
        run = NetworkTraining(self.spec, self.store, self.development(), self.device)
        torch.set_num_threads(self.spec.network.threads)
        try:
            while run.step() is not None:
                pass
        finally:
            run.close()
            torch.set_num_threads(HEAD_THREADS)

    def step(self) -> dict[str, Any]:
        """Train some epochs; the last step evaluates and writes the rows."""
        started = time.monotonic()
        self._train(self.epochs_per_step)
        if self.trained_s is not None:
            self.trained_s += time.monotonic() - started
        if self.trainer.epoch < self.trainer.slot.epochs:
            return {"epoch": self.trainer.epoch, **self._select_metrics()}
        return self._end()

    def _train(self, epochs: int) -> None:
        for report in itertools.islice(self.trainer, epochs):
            self.history.append({name: values.tolist() for name, values in report.items()})

    def _select_metrics(self) -> dict[str, float]:
        """``select`` metrics of the first head: what a scheduler of single heads watches."""
        return {k: v[0] for k, v in self.history[-1].items() if k.startswith("select/")}

    def _end(self) -> dict[str, Any]:
        started = time.monotonic()
        results, trained = self._results(0), len(self.trainer.slots)
        for slots in self.others:
            self._begin(slots)
            self._train(slots[0].epochs)
            results += self._results(trained)
            trained += len(slots)
        if self.trained_s is not None:
            share = (self.trained_s + time.monotonic() - started) / len(results)
            results = [(trial, replace(result, own_s=share)) for trial, result in results]
        self.write(results, measured_otherwise={"population": trained})
        return {"epoch": self.trainer.epoch, **_summary(results), tune.result.DONE: True}

    def _results(self, first: int) -> list[tuple[PlannedTrial, TrialResult]]:
        """Of the part in training, whose first head is that of so many of all."""
        logits = population_logits(self.trainer, self.bank)
        results = []
        for k, (_, trials) in enumerate(self.heads[first : first + len(self.trainer.slots)]):
            own = {name: split.one(k) for name, split in logits.items()}
            for trial in trials:
                result = self._result_of(trial, k, own)
                self.keep(trial, result, self.trainer, k)
                results.append((trial, result))
        return results

    def _result_of(self, trial: PlannedTrial, k: int, own: dict[str, SplitLogits]) -> TrialResult:
        curves = [{name: v[k] for name, v in report.items()} for report in self.history]
        diverged = int(self.trainer.diverged_epoch[k])
        if diverged >= 0:
            message = f"the head's loss of epoch {diverged + 1} is not finite"
            return TrialResult("diverged", diverged + 1, curves[:diverged], message)
        return _result(own, trial, int(self.trainer.best_epoch[k]) + 1, curves, self.base)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the population: safetensors, and its curves as JSON."""
        tensors = {k: v.detach().contiguous() for k, v in self.trainer.state().items()}
        save_file(tensors, Path(checkpoint_dir) / CHECKPOINT)
        (Path(checkpoint_dir) / HISTORY).write_text(json.dumps(self.history))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Take a saved population back."""
        self.trainer.load_state(load_file(Path(checkpoint) / CHECKPOINT))
        self.history = json.loads((Path(checkpoint) / HISTORY).read_text())
        self.trained_s = None  # what was trained before the interruption was not timed here


def _by_head(trials: Sequence[PlannedTrial]) -> list[tuple[HeadSlot, list[PlannedTrial]]]:
    """Each head once, and its trials: those of post-hoc methods behind it train none of their own.

    Raises:
        ValueError: a trial has no head.
    """
    found: dict[str, tuple[HeadSlot, list[PlannedTrial]]] = {}
    for trial in trials:
        if trial.spec.head is None:
            raise ValueError("every trial of a HeadTrainable needs a head slot")
        slot = trial.spec.head
        found.setdefault(canonical_json(slot), (slot, []))[1].append(trial)
    return list(found.values())


def trainable(name: str) -> type[tune.Trainable]:
    """The Trainable bound to a method, e.g. ``MacCalTrainable``.

    A post-hoc method is bound to the network's own head; behind another head it is the
    ``posthoc`` slot in the configuration of that head's class.

    Args:
        name: a name of the method registry.

    Raises:
        UserError: the method is unknown.
    """
    base = HeadTrainable if METHODS[name].kind == "head" else NetworkTrainable
    title = "".join(part.capitalize() for part in name.split("_"))
    return type(
        f"{title}Trainable",
        (base,),
        {"method": name, "plugins": plugins.in_use(), "__doc__": METHODS[name].title},
    )


def _result(
    logits: dict[str, SplitLogits],
    trial: PlannedTrial,
    epoch: int,
    curves: list[dict[str, float]],
    known: Mapping[str, float],
) -> TrialResult:
    evaluation: Evaluation | None = evaluate_one(logits, trial.spec.posthoc, known)
    if evaluation is None:
        return TrialResult("diverged", epoch, curves, message="the logits are not finite")
    return TrialResult("done", epoch, curves, evaluation=evaluation)


def _summary(results: list[tuple[PlannedTrial, TrialResult]]) -> dict[str, Any]:
    """What a scheduler or searcher may see at the end: ``select`` alone, never ``test``."""
    result = results[0][1]
    metrics = result.evaluation.metrics if result.evaluation else {}
    seen = {name: value for name, value in metrics.items() if name.startswith("select/")}
    return {"status": result.status, "flags": result.flags or "", **seen}
