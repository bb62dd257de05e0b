"""What the Trainables share: reading a configuration, and writing the rows of its trials."""

import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa
import torch

from tune_calib.data.base import Split
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.engine.classifier import keep, tensors_of_trial
from tune_calib.engine.evaluate import Evaluation, SplitLogits, evaluate_one
from tune_calib.engine.machine import require_environment
from tune_calib.engine.population import PopulationTrainer
from tune_calib.engine.precision import take_up
from tune_calib.engine.store import Store
from tune_calib.errors import RefusedError
from tune_calib.paths import parse_path
from tune_calib.progress import report_progress
from tune_calib.results.columns import TableName
from tune_calib.results.folders import refuse_moved
from tune_calib.results.tables import write_results
from tune_calib.spec import plugins
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import SLOTS
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.settings import resolve_spec
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.ray.rows import Provenance, TrialResult, bin_rows, curve_rows, trial_row
from tune_calib.tuning.resolve import resolve_files

DONE = "done"
"""Whether a report is the last one of its trial, by the name that Ray Tune gives it."""


class SpecTrainable:
    """What the Trainables share: reading a configuration, writing the rows of its trials.

    They have the methods of Ray's Trainable, and do not need Ray.

    Configuration of the harness: ``work`` (``plan.RayTrial.config`` and its name) and ``run``.
    Used alone: the slots ``data``, ``network``, ``head``, ``posthoc``, a method's settings beside
    its slot's or in ``params``; ``recipe`` (its name; else the data set's quick one);
    ``own_recipes`` (train each method as its authors do); and ``run`` (``rows.Provenance``).

    Args:
        config: of the first trial.
        trial_id: its name, where the configuration has no ``work``, which has one.
    """

    method: ClassVar[str | None] = None
    plugins: ClassVar[Sequence[Plugin]] = ()

    def __init__(self, config: dict[str, Any], trial_id: str = "default") -> None:
        self.resets = 0
        self.trial_id = trial_id
        try:
            self.setup(config)
        except BaseException:
            self.cleanup()
            raise

    def setup(self, config: dict[str, Any]) -> None:
        """Read the configuration; everything of an earlier trial is replaced."""
        self.started = time.monotonic()
        self.provenance = Provenance(**config["run"])
        # Before anything is looked up; the process may have served a run with others.
        plugins.use([*self.plugins, *(Plugin(**own) for own in self.provenance.plugins)])
        work = config.get("work") or {"trials": [self.bound(config)], "name": self.trial_id}
        self.name: str = work["name"]
        self.device = torch.device(self.provenance.device)
        self.store = Store(parse_path(self.provenance.store))
        self.trials = [_trial(plain) for plain in work["trials"]]
        self.dependents = [_trial(plain) for plain in work.get("dependents", [])]
        require_environment(self.spec)
        # In each trial anew: the process may have served one that asked for other switches.
        take_up(self.spec.network, self.device)
        torch.set_num_threads(self._threads())

    @classmethod
    def bound(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """The only trial of a class that is used alone.

        Raises:
            UserError: a setting is unknown or out of range.
        """
        slots = {name: dict(config[name]) for name in SLOTS if config.get(name) is not None}
        if cls.method is not None:
            slots.setdefault(METHODS[cls.method].kind, {})["method"] = cls.method
        asked = ResolvedRequest(slots).with_recipe(config.get("recipe"))
        if run := config.get("run"):
            root = Path(run["data_root"]) if run.get("data_root") else None
            asked = resolve_files(asked, root, parse_path(run["store"]))
        spec = resolve_spec(asked.overrides, asked.recipe, config.get("own_recipes", False))
        plain = spec.model_dump(mode="json")
        return {"spec": plain, "rung": 0, "label": cls.method or "network"}

    def reset(self, config: dict[str, Any], trial_id: str = "default") -> None:
        """Take up another trial; equal to a fresh instance."""
        self.cleanup()
        self.resets += 1
        self.trial_id = trial_id
        self.setup(config)

    def step(self) -> dict[str, Any]:
        """Go on with the trial; what it reports has ``DONE`` at the end."""
        raise NotImplementedError

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save what the trial needs to go on elsewhere."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Take a checkpoint back."""

    def cleanup(self) -> None:
        """Free what the trial holds."""

    def _threads(self) -> int:
        """Torch threads, on which the last digits depend."""
        raise NotImplementedError

    @property
    def spec(self) -> TrialSpec:
        """A spec that names the network of this Ray trial."""
        return (self.trials or self.dependents)[0].spec

    def development(self) -> Development:
        """The splits for training and selection.

        Raises:
            RefusedError: they are of another copy of the data set than the driver reads.
        """
        data = self.spec.data
        development = load_development(data, self._data_root(), self._cache())
        of_driver = self.provenance.digests.get(canonical_json(data), development.digest)
        if development.digest != of_driver:
            raise RefusedError(
                f"{data.dataset}: `data_root` {self._data_root()} of this node "
                f"({platform.node()}) holds another copy ({development.digest}) than that of the "
                f"driver ({of_driver}); give every node the same files"
            )
        return development

    def test_split(self) -> Split:
        """The test split, for the evaluation at the end; a search may not open it."""
        if self.provenance.is_search:
            raise ValueError("a search tried to read the test split")
        return load_test(self.spec.data, self._data_root(), self._cache())

    def _data_root(self) -> Path | None:
        return Path(self.provenance.data_root) if self.provenance.data_root else None

    def _cache(self) -> Path:
        return self.store.images

    def keep(
        self, trial: PlannedTrial, result: TrialResult, trainer: PopulationTrainer | None, k: int
    ) -> None:
        """Keep the classifier of a trial that is done; a search has too many of them."""
        if result.evaluation is not None and not self.provenance.is_search:
            tensors = tensors_of_trial(trainer, k, result.evaluation.transform)
            keep(self.store, trial.spec, tensors, result.evaluation.metrics)

    def write(
        self,
        results: list[tuple[PlannedTrial, TrialResult]],
        samples: pa.Table | None = None,
        measured_otherwise: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write the rows of this Ray trial at once."""
        measured = {
            "wall_s": time.monotonic() - self.started,
            "population": len(results),
            "actor_resets": self.resets,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            **measured_otherwise,
        }
        tables: dict[TableName, list[dict[str, Any]]] = {
            "trials": [trial_row(t, o, self.provenance, measured) for t, o in results],
            "curves": [row for t, o in results for row in curve_rows(t, o)],
            "bins": [row for t, o in results for row in bin_rows(t, o)],
        }
        refuse_moved(parse_path(self.provenance.out), self.provenance.sweep)
        write_results(parse_path(self.provenance.out), self.name, tables, samples)


def _trial(plain: Mapping[str, Any]) -> PlannedTrial:
    return PlannedTrial(TrialSpec.build(**plain["spec"]), plain["rung"], plain["label"])


def evaluated(
    logits: dict[str, SplitLogits],
    trial: PlannedTrial,
    epoch: int,
    curves: list[dict[str, float]],
    known: Mapping[str, float],
) -> TrialResult:
    """The result of a trial from the logits of its classifier before the post-hoc method."""
    method = trial.spec.posthoc and METHODS[trial.spec.posthoc.method].title
    report_progress(f"fitting {method}" if method else "evaluating")
    evaluation: Evaluation | None = evaluate_one(logits, trial.spec.posthoc, known)
    if evaluation is None:
        return TrialResult("diverged", epoch, curves, message="the logits are not finite")
    return TrialResult("done", epoch, curves, evaluation=evaluation)


def summary(results: list[tuple[PlannedTrial, TrialResult]]) -> dict[str, Any]:
    """What a scheduler or searcher may see at the end: ``select`` alone, never ``test``.

    ``statuses`` counts how the trials ended, for the screen.
    """
    result = results[0][1]
    metrics = result.evaluation.metrics if result.evaluation else {}
    seen = {name: value for name, value in metrics.items() if name.startswith("select/")}
    statuses = dict(Counter(result.status for _, result in results))
    return {"status": result.status, "flags": result.flags or "", "statuses": statuses, **seen}
