"""What a call of the command line or of Python passes to the drivers of its runs."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from tune_calib.files.paths import AnyPath
from tune_calib.tuning.loggers.base import Follower
from tune_calib.tuning.progress.screen import Screen


@dataclass(frozen=True)
class Context:
    """Where a call shows its progress, and the loggers of its trials."""

    view: Screen = field(default_factory=partial(Screen, ""))
    loggers: list[str] = field(default_factory=list)  # without those that failed
    follower: Follower | None = None  # of the folder that is being completed

    @contextlib.contextmanager
    def following(self, out: AnyPath, sweep: str) -> Iterator["Context"]:
        if not self.loggers:
            yield self
            return
        follower = Follower(self.loggers, out, sweep)
        follower.send_rows()
        try:
            yield replace(self, follower=follower)
        finally:
            follower.close()
