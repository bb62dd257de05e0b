"""The Trainable of a network; its post-hoc trials end with it."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tune_calib.engine.artifacts import (
    NetworkTraining,
    ensure_bank,
    ensure_development_bank,
    load_network,
)
from tune_calib.engine.bank import DevelopmentBank, bank_key
from tune_calib.engine.evaluate import (
    SplitLogits,
    bank_logits,
    network_logits,
    regime_of_base,
    regime_of_images,
    regime_of_train,
)
from tune_calib.engine.given import refuse_better
from tune_calib.engine.imports import read_manifest
from tune_calib.engine.population import HEAD_THREADS
from tune_calib.engine.samples import read_epochs
from tune_calib.engine.steps import Stopwatch
from tune_calib.engine.store import artifact_manifest
from tune_calib.errors import DivergedError
from tune_calib.paths import parse_path
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import WATCHED
from tune_calib.tuning.profile import profiled_epoch, write_profile
from tune_calib.tuning.ray.rows import TrialResult
from tune_calib.tuning.ray.spec_trainable import DONE, SpecTrainable, evaluated, summary


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
        if not self.provenance.profile or len(run.history) != profiled_epoch(
            self.spec.network.epochs
        ):
            return run.step()
        watch = Stopwatch()
        report = run.step(watch)
        if report is not None:
            out = parse_path(self.provenance.out)
            write_profile(out, self.spec, len(self.splits.train), watch.seconds)
        return report

    def _end_diverged(self, message: str) -> dict[str, Any]:
        history = self.network_run.history
        epoch = len(history) + 1
        told = {trial.spec.hash: trial for trial in [*self.trials, *self.dependents]}
        result = TrialResult("diverged", epoch, history, message=f"network: {message}")
        self.write([(trial, result) for trial in told.values()])
        statuses = {"diverged": len(told)}
        # A scheduler compares with it at this epoch; neither row nor study takes it for a result.
        worst = {column("select", name): METRICS[name].worst for name in WATCHED}
        ended = {"status": "diverged", "statuses": statuses, DONE: True}
        return {"epoch": epoch, **worst, **ended}

    def _end(self) -> dict[str, Any]:
        imported = self.spec.data.imported
        about = (
            artifact_manifest(self.network_run.artifact)
            if imported is None
            else read_manifest(imported, self.store)
        )
        if not self.trials:
            return {"epoch": about["epoch"], "status": "done", DONE: True}
        started = time.monotonic()
        logits, on_train = self._outputs(about)
        refuse_better(self.spec, self.store, logits)
        base = regime_of_base(logits, on_train)
        predict_s = time.monotonic() - started
        results = []
        for trial in self.trials:
            started = time.monotonic()
            known = base if trial.spec.posthoc is not None else on_train
            result = evaluated(logits, trial, about["epoch"], about["history"], known)
            own_s: float | None = time.monotonic() - started
            if trial.spec.posthoc is None:  # else the network is that of another trial
                trained_s = about.get("train_s")
                own_s = None if trained_s is None else trained_s + predict_s
            self.keep(trial, result, None, 0)
            results.append((trial, replace(result, own_s=own_s)))
        # Where it was trained, which may have been elsewhere and earlier.
        trained_on = {"threads": about.get("threads"), **about.get("machine", {})}
        self.write(results, self._samples(len(about["history"])), trained_on)
        return {"epoch": about["epoch"], **summary(results), DONE: True}

    def _outputs(self, about: Mapping[str, Any]) -> tuple[dict[str, SplitLogits], dict[str, float]]:
        """Logits of the network's own head, and its regime on train.

        What further post-hoc trials of the network will ask for is read from its clean bank, which
        the first of them makes: the numbers are those of a pass of their own.
        """
        if self.spec.data.imported is not None:
            return bank_logits(self._clean_bank(), self.device), regime_of_train(about)
        needs_bank = self.spec.network.is_frozen or any(t.spec.posthoc for t in self.trials)
        # On other threads than a bank's, last digits would depend on who made it.
        is_alike = self._threads() == HEAD_THREADS
        # Where nothing can be kept, each makes its own pass.
        if needs_bank and is_alike and about.get("regime") and self.store.is_writable:
            return bank_logits(self._clean_bank(), self.device), regime_of_train(about)
        trained = load_network(self.spec, self.store, self.device)
        info = self.spec.data.info
        test = None if self.provenance.is_search else self.test_split().to(self.device)
        logits = network_logits(trained, info, self.splits, test)
        return logits, regime_of_train(about) or regime_of_images(trained, info, self.splits)

    def _clean_bank(self) -> DevelopmentBank:
        key = bank_key(self.spec, None)
        # Those of heads wait for this Ray trial, and would make the bank again.
        keys = {bank_key(t.spec, t.spec.head) for t in self.dependents if t.spec.head}
        needs = (self.spec, key, self.store)
        if self.provenance.is_search:
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
