"""Weights & Biases: a run for each trial, sent as the variables ``WANDB_...`` specify."""

import os
from typing import Any

import wandb

from tune_calib.errors import UserError
from tune_calib.files.documents import hash_text
from tune_calib.tuning.loggers.base import Logger, Run, Values

PROJECT = "tune-calib"


class WeightsAndBiases(Logger):
    """Writes a run for each trial."""

    remedy = "check WANDB_API_KEY and WANDB_BASE_URL, or set WANDB_MODE=offline"

    def _connect(self) -> None:
        is_sent = os.environ.get("WANDB_MODE", "online") in ("online", "run")
        if is_sent and not wandb.login(prompt=False, verify=True):
            raise UserError(
                "wandb: not logged in; run `wandb login`, or set WANDB_MODE=offline", setting="log"
            )

    def _open_run(self, run: Run) -> Any:
        # A trial in two folders has two runs; sent twice from one folder, it has one.
        identity = hash_text(f"{self.group} {self.sweep} {run.key}")
        opened = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            group=self.group,
            name=run.name,
            id=identity[:16],
            resume="allow",
            config=dict(run.settings),
            reinit="create_new",
            # By default, it waits for a lost server without an end.
            settings=wandb.Settings(
                silent=True, console="off", finish_timeout=60, finish_timeout_raises=True
            ),
        )
        # The steps of W&B never decrease, but an epoch may arrive late.
        opened.define_metric("*", step_metric="epoch")
        return opened

    def _write_epoch(self, opened: Any, epoch: int, values: Values) -> None:
        opened.log({"epoch": epoch, **values})

    def _end_run(self, opened: Any, run: Run, epoch: int, status: str, final: Values) -> None:
        opened.summary.update({"status": status, "epoch": epoch, **final})
        code = 0 if status == "done" else 1
        opened.finish(exit_code=code)

    def _close_run(self, opened: Any) -> None:
        opened.finish(exit_code=1)
