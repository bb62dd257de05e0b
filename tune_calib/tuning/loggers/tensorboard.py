"""TensorBoard: event files in ``OUT/tensorboard``, written by tensorboardX as in Ray Tune."""

import re
from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.tuning.loggers.base import Logger, Run, Values

FOLDER = "tensorboard"


class TensorBoard(Logger):
    """Writes a folder of event files for each run, with final metrics as ``final/...``."""

    def _connect(self) -> None:
        if not isinstance(self.out, Path):
            raise UserError(
                "tensorboard writes local files: name a folder instead of a URL as `out`",
                setting="log",
            )
        self._folder = self.out / FOLDER

    def _open_run(self, run: Run) -> SummaryWriter:
        name = re.sub(r"[^\w.+-]+", "-", run.name)
        return SummaryWriter(str(self._folder / f"{name}-{run.key[:8]}"))

    def _write_epoch(self, opened: SummaryWriter, epoch: int, values: Values) -> None:
        for name, value in values.items():
            opened.add_scalar(name, value, epoch)
        opened.flush()

    def _end_run(
        self, opened: SummaryWriter, run: Run, epoch: int, status: str, final: Values
    ) -> None:
        # With all metrics the HParams dashboard would have hundreds of columns.
        shown = {}
        for name, value in final.items():
            split, _, metric = name.removeprefix("final/").partition("/")
            if split in ("select", "test") and metric in METRICS:
                shown[name] = value
        for summary in hparams({**run.settings, "status": status}, shown):
            opened.file_writer.add_summary(summary)
        for name, value in final.items():
            opened.add_scalar(name, value, epoch)
        opened.close()

    def _close_run(self, opened: SummaryWriter) -> None:
        opened.close()
