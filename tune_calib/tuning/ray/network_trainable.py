"""The Trainable of a network; its post-hoc trials end with it."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tune_calib.engine.artifacts import NetworkTraining, load_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.evaluate import (
    SplitLogits,
    bank_logits,
    network_logits,
    regime_of_base,
    regime_of_images,
    regime_of_train,
)
from tune_calib.engine.frozen import refuse_better
from tune_calib.engine.imports import read_manifest
from tune_calib.engine.population import HEAD_THREADS
from tune_calib.engine.samples import read_epochs
from tune_calib.engine.steps import Stopwatch
from tune_calib.engine.store import artifact_manifest
from tune_calib.errors import DivergedError
from tune_calib.paths import parse_path
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import WATCHED
from tune_calib.tuning.profile import write_profile
from tune_calib.tuning.ray.rows import TrialResult
from tune_calib.tuning.ray.spec_trainable import DONE, SpecTrainable, evaluate_trial, summarize


class NetworkTrainable(SpecTrainable):
    """Trains one network, an epoch a step, from its own last checkpoint, and evaluates it."""

    def setup(self, config: dict[str, Any]) -> None:
        """Wait for the network's lock, then read its artifact or last checkpoint."""
        super().setup(config)
        if self.spec.data.imported is not None:
            return
        self.splits = self.development().to(self.device)
        self.network_run = NetworkTraining(self.spec, self.store, self.splits, self.device)

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
        # The second epoch is profiled, since the first one warms up.
        profiled = min(1, self.spec.network.epochs - 1)
        if not self.provenance.profile or len(run.history) != profiled:
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
        trials = {trial.spec.hash: trial for trial in [*self.trials, *self.dependents]}
        result = TrialResult("diverged", epoch, history, message=f"network: {message}")
        self.write([(trial, result) for trial in trials.values()])
        # A scheduler compares with it at this epoch; neither row nor study takes it for a result.
        worst = {column("select", name): METRICS[name].worst for name in WATCHED}
        ended = {"status": "diverged", "statuses": {"diverged": len(trials)}, DONE: True}
        return {"epoch": epoch, **worst, **ended}

    def _end(self) -> dict[str, Any]:
        if self.spec.data.imported is None:
            about = artifact_manifest(self.network_run.artifact)
        else:
            about = read_manifest(self.spec.data.imported, self.store)
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
            result = evaluate_trial(logits, trial, about["epoch"], about["history"], known)
            own_s: float | None = time.monotonic() - started
            if trial.spec.posthoc is None:  # else the network is that of another trial
                trained_s = about.get("train_s")
                own_s = None if trained_s is None else trained_s + predict_s
            self.save_classifier(trial, result, None, 0)
            results.append((trial, replace(result, own_s=own_s)))
        # Where it was trained, which may have been elsewhere and earlier.
        trained_on = {"threads": about.get("threads"), **about.get("machine", {})}
        # Records of single samples, for the first of the network's own trials: all share them.
        first, epochs = self.trials[0].spec, len(about["history"])
        samples = read_epochs(self.store, first.network_id, epochs, first.hash)
        self.write(results, samples, trained_on)
        return {"epoch": about["epoch"], **summarize(results), DONE: True}

    def _outputs(self, about: Mapping[str, Any]) -> tuple[dict[str, SplitLogits], dict[str, float]]:
        """Return the logits of the network's own head, and its regime on train.

        Both come from its clean bank, with the numbers of a pass of their own, where further
        post-hoc trials need that bank.
        """
        # On other threads than a bank's, last digits would depend on who made it.
        is_alike = self._threads() == HEAD_THREADS
        needs_bank = self.spec.network.is_frozen or any(t.spec.posthoc for t in self.trials)
        # Where nothing can be kept, each makes its own pass.
        is_kept = is_alike and about.get("regime") and self.store.is_writable
        if self.spec.data.imported is not None or (needs_bank and is_kept):
            key = bank_key(self.spec, None)
            # Those of heads wait for this Ray trial, and would make the bank again.
            keys = {bank_key(t.spec, t.spec.head) for t in self.dependents if t.spec.head}
            bank = self.open_bank(key, lambda: self.splits, key in keys)
            return bank_logits(bank, self.device), regime_of_train(about)
        trained = load_network(self.spec, self.store, self.device)
        info = self.spec.data.info
        test = None if self.provenance.is_search else self.test_split().to(self.device)
        logits = network_logits(trained, info, self.splits, test)
        return logits, regime_of_train(about) or regime_of_images(trained, info, self.splits)

    def cleanup(self) -> None:
        """Release the lock of the network."""
        if hasattr(self, "network_run"):
            self.network_run.close()
