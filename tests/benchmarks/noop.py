"""(h) A search of 2,000 network trials that train nothing: what the harness alone takes."""

import resource
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from ray import tune

from tests.benchmarks.common import CORES
from tests.benchmarks.search import ask_seconds, job
from tune_calib.engine.evaluate import SplitLogits, evaluate_one
from tune_calib.tuning.backend.rows import TrialResult
from tune_calib.tuning.backend.trainables import NetworkTrainable
from tune_calib.tuning.search import networks as search_networks
from tune_calib.tuning.search.driver import search

COUNTS = (500, 2000)


class NothingTrained(NetworkTrainable):
    """A network trial whose logits are drawn; it writes its rows as any other."""

    def setup(self, config: dict[str, Any]) -> None:
        super(NetworkTrainable, self).setup(config)

    def step(self) -> dict[str, Any]:
        (trial,) = self.trials
        chance = torch.Generator().manual_seed(int(trial.spec.hash[:8], 16))
        labels = torch.arange(200) % 10
        logits = 3 * torch.randn(1, 200, 10, generator=chance)
        split = SplitLogits(logits, labels)
        evaluation = evaluate_one({"select": split, "calib": split}, None)
        self.write([(trial, TrialResult("done", 1, [], evaluation=evaluation))])
        return {"epoch": 1, "status": "done", tune.result.DONE: True}


def main() -> None:
    """Print a row for each number of trials."""
    print(f"network trials that train nothing, {CORES} at once, TPE, a journal file")
    print("trials   trials/s first tenth   last tenth   ask at the end   driver memory")
    search_networks.NetworkTrainable = NothingTrained  # type: ignore[misc]
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            asked = job(root / "out", root / "store", count, {"network": {"epochs": 1}})
            asked = replace(asked, question=replace(asked.question, method="fl"))
            found = search(asked)
            written = sorted(path.stat().st_mtime for path in asked.out.glob("trials/network-*"))
            tenth = count // 10
            early = tenth / (written[tenth] - written[0])
            late = tenth / (written[-1] - written[-1 - tenth])
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{count:6d} {early:22.1f} {late:12.1f} {1e3 * ask_seconds(asked):13.0f} ms"
                f" {memory:12.0f} MiB   {found.counts}",
                flush=True,
            )
