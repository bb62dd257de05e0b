"""TensorBoard: event files in ``OUT/tensorboard``, by the writer that Ray Tune comes with."""

import re
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.tuning.loggers.base import Group, Logger, Run, Values

FOLDER = "tensorboard"


class TensorBoard(Logger):
    """A folder of event files a run: curves, final metrics as ``final/...``, settings."""

    def __init__(self, group: Group) -> None:
        """Set the folder of the event files, which must be on this machine."""
        if not isinstance(group.out, Path):
            raise UserError(
                "`log` tensorboard writes local files: name a folder instead of a URL as `out`"
            )
        self._folder = group.out / FOLDER
        self._writers: dict[str, SummaryWriter] = {}
        self._runs: dict[str, Run] = {}

    def begin(self, run: Run) -> None:
        """Open the event file of a run."""
        if run.key not in self._writers:
            name = re.sub(r"[^\w.+-]+", "-", run.name)
            self._writers[run.key] = SummaryWriter(str(self._folder / f"{name}-{run.key[:8]}"))
        self._runs[run.key] = run

    def epoch(self, key: str, epoch: int, values: Values) -> None:
        """Write a point of each curve."""
        for name, value in values.items():
            self._writers[key].add_scalar(name, value, epoch)
        self._writers[key].flush()

    def end(self, key: str, epoch: int, status: str, metrics: Values) -> None:
        """Write settings and final metrics, also for the page of hyper-parameters."""
        writer, run = self._writers.pop(key), self._runs.pop(key)
        final = {f"final/{name}": value for name, value in metrics.items()}
        # A page of hyper-parameters with all metrics would have hundreds of columns.
        columns = {f"final/{split}/{name}" for split in ("select", "test") for name in METRICS}
        shown = {name: value for name, value in final.items() if name in columns}
        for summary in hparams({**run.settings, "status": status}, shown):
            writer.file_writer.add_summary(summary)
        for name, value in final.items():
            writer.add_scalar(name, value, epoch)
        writer.close()

    def figures(self, paths: Sequence[Path]) -> None:
        """Write them as images."""
        import numpy as np

        with SummaryWriter(str(self._folder / "report")) as writer:
            for path in paths:
                pixels = np.asarray(Image.open(path).convert("RGB"))
                writer.add_image(path.stem, pixels, dataformats="HWC")

    def close(self) -> None:
        """Close the open event files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
