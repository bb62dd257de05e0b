"""A search of 2,000 network trials that train nothing: what the harness alone takes."""

import resource
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.common import CORES
from tests.benchmarks.search import job, suggestion_seconds
from tune_calib.engine.evaluate import SplitLogits, evaluate_one
from tune_calib.tuning.ray import executor as ray_executor
from tune_calib.tuning.ray.trainables import JobTrainable
from tune_calib.tuning.run import execute_run
from tune_calib.tuning.work.rows import TrialResult
from tune_calib.tuning.work.worker import DONE
from tune_calib.tuning.work.workers import KINDS, NetworkWorker


class NothingTrained(NetworkWorker):
    """A network trial whose logits are drawn; it writes its rows as any other."""

    def setup(self, config: dict[str, Any]) -> None:
        super(NetworkWorker, self).setup(config)

    def step(self) -> dict[str, Any]:
        (trial,) = self.trials
        chance = torch.Generator().manual_seed(int(trial.spec.hash[:8], 16))
        labels = torch.arange(200) % 10
        logits = 3 * torch.randn(1, 200, 10, generator=chance)
        split = SplitLogits(logits, labels)
        evaluation = evaluate_one({"select": split, "calib": split}, None)
        self.write([(trial, TrialResult("done", 1, [], evaluation=evaluation))])
        return {"epoch": 1, "status": "done", DONE: True}


class NothingPlanned(JobTrainable):
    """Its workers train nothing."""

    def setup(self, config: dict[str, Any]) -> None:
        KINDS["network"] = NothingTrained
        super().setup(config)


def measured(count: int, at_once: int = CORES, address: str | None = None) -> dict[str, float]:
    """A search of so many trials: its seconds, its rates at both ends, the ask behind the last."""
    ray_executor.JobTrainable = NothingPlanned  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        asked = job(root / "out", root / "store", count, {"network": {"epochs": 1}})
        question = replace(asked.definition, method="fl")
        location = replace(asked.location, address=address)
        asked = replace(asked, definition=question, location=location, at_once=at_once)
        execute_run(asked)
        # Without the baseline, which is over before the actors of the search start.
        paths = asked.out.glob("trials/network-*")
        written = sorted(path.stat().st_mtime for path in paths)[1:]
        tenth = count // 10
        return {
            "seconds": written[-1] - written[0],
            "early": tenth / (written[2 * tenth] - written[tenth]),
            "late": tenth / (written[-1] - written[-1 - tenth]),
            "ask_s": suggestion_seconds(asked),
            "mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
