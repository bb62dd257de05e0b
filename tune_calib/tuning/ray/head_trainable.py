"""The Trainable of a population of heads on the bank of one network."""

import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tune_calib.engine.artifacts import NetworkTraining, has_network
from tune_calib.engine.bank import DevelopmentBank, bank_key
from tune_calib.engine.evaluate import (
    SplitLogits,
    bank_logits,
    population_logits,
    regime_of_bank,
)
from tune_calib.engine.frozen import refuse_better
from tune_calib.engine.population import HEAD_THREADS, PopulationTrainer, in_parts
from tune_calib.progress import report_progress
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import canonical_json
from tune_calib.tuning.ray.rows import TrialResult
from tune_calib.tuning.ray.spec_trainable import DONE, SpecTrainable, evaluate_trial, summarize

CHECKPOINT = "population.safetensors"
HISTORY = "history.json"


class HeadTrainable(SpecTrainable):
    """Trains a population of heads on the feature bank of their network.

    ``epochs_per_step`` of the configuration is 1 for a scheduler that watches (the default), and
    all of them where a report costs more than it is worth.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Open the bank; train the network and build the bank if they are absent."""
        super().setup(config)
        self.heads = _group_by_head(self.trials)
        self.bank = self._find_bank()
        # Watched is the first part; the others are trained at the end.
        first, *self.others = in_parts([slot for slot, _ in self.heads], self.bank)
        self._begin(first)
        self.epochs_per_step: int = config.get("epochs_per_step", 1)
        self.trained_s: float | None = 0.0

    def _begin(self, slots: list[HeadSlot]) -> None:
        """Begin a part of the population; the one before is freed first."""
        vars(self).pop("trainer", None)
        seed = self.spec.network.seed
        self.trainer = PopulationTrainer(slots, self.bank, seed, self.device)
        self.history: list[dict[str, list[float]]] = []

    def _threads(self) -> int:
        return HEAD_THREADS

    def _find_bank(self) -> DevelopmentBank:
        key = bank_key(self.spec, self.spec.head)
        wanted = (self.provenance.store, self.provenance.is_search, key)
        if getattr(self, "opened", None) == wanted:
            return self.bank  # its checksums were read once
        if not has_network(self.spec, self.store):
            self._train_network()
        bank = self.open_bank(key, self.development)
        if self.spec.network.is_frozen:
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
            # Of the first head: this is what a scheduler of single heads watches.
            last = self.history[-1].items()
            select = {name: values[0] for name, values in last if name.startswith("select/")}
            return {"epoch": self.trainer.epoch, **select}
        return self._end()

    def _train(self, epochs: int) -> None:
        for report in itertools.islice(self.trainer, epochs):
            values = {name: values.tolist() for name, values in report.items()}
            self.history.append(values)
            epochs = self.trainer.slot.epochs
            report_progress("epoch", self.trainer.epoch, epochs, _means(values))

    def _end(self) -> dict[str, Any]:
        started = time.monotonic()
        results, trained = self._evaluate_part(0), len(self.trainer.slots)
        for slots in self.others:
            self._begin(slots)
            self._train(slots[0].epochs)
            results += self._evaluate_part(trained)
            trained += len(slots)
        if self.trained_s is not None:
            share = (self.trained_s + time.monotonic() - started) / len(results)
            results = [(trial, replace(result, own_s=share)) for trial, result in results]
        # The seconds of whoever made the bank, perhaps elsewhere; older versions did not note them.
        measured = {"population": trained, "bank_s": self.bank.about.get("made_s")}
        self.write(results, measured_otherwise=measured)
        return {"epoch": self.trainer.epoch, **summarize(results), DONE: True}

    def _evaluate_part(self, first: int) -> list[tuple[PlannedTrial, TrialResult]]:
        """Evaluate the part in training, whose first head has this number among all heads."""
        logits = population_logits(self.trainer, self.bank)
        results = []
        for k, (_, trials) in enumerate(self.heads[first : first + len(self.trainer.slots)]):
            own = {name: split.one(k) for name, split in logits.items()}
            for trial in trials:
                result = self._evaluate_head(trial, k, own)
                self.save_classifier(trial, result, self.trainer, k)
                results.append((trial, result))
        return results

    def _evaluate_head(
        self, trial: PlannedTrial, k: int, own: dict[str, SplitLogits]
    ) -> TrialResult:
        curves = [{name: v[k] for name, v in report.items()} for report in self.history]
        diverged = int(self.trainer.diverged_epoch[k])
        if diverged >= 0:
            message = f"the head's loss of epoch {diverged + 1} is not finite"
            return TrialResult("diverged", diverged + 1, curves[:diverged], message)
        return evaluate_trial(own, trial, int(self.trainer.best_epoch[k]) + 1, curves, self.base)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the population: safetensors, and its curves as JSON."""
        tensors = {k: v.detach().contiguous() for k, v in self.trainer.state().items()}
        save_file(tensors, Path(checkpoint_dir) / CHECKPOINT)
        (Path(checkpoint_dir) / HISTORY).write_text(json.dumps(self.history))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load a saved population."""
        self.trainer.load_state(load_file(Path(checkpoint) / CHECKPOINT))
        self.history = json.loads((Path(checkpoint) / HISTORY).read_text())
        self.trained_s = None  # what was trained before the interruption was not timed here


def _means(report: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Average over the heads that did not diverge: a sign of life, not a result."""
    finite = {name: [v for v in values if math.isfinite(v)] for name, values in report.items()}
    return {name: sum(values) / len(values) for name, values in finite.items() if values}


def _group_by_head(trials: Sequence[PlannedTrial]) -> list[tuple[HeadSlot, list[PlannedTrial]]]:
    """Group trials by their heads: post-hoc methods behind one head share it."""
    groups: dict[str, tuple[HeadSlot, list[PlannedTrial]]] = {}
    for trial in trials:
        if trial.spec.head is None:
            raise ValueError("every trial of a HeadTrainable needs a head slot")
        slot = trial.spec.head
        groups.setdefault(canonical_json(slot), (slot, []))[1].append(trial)
    return list(groups.values())
