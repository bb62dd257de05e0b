"""A Trainable that needs nothing: its workers, a process each, start as fast as Ray lets them."""

import os
import signal
from pathlib import Path

from ray import tune


class Counted(tune.Trainable):
    """Ends at once; the second of them crashes."""

    def step(self):
        if self.config["job"]["name"] == 1:
            raise ValueError("the second one")
        return {"epoch": 1, "score": 1.0, "status": "done", tune.result.DONE: True}

    def reset_config(self, new_config):
        return True


class Killed(tune.Trainable):
    """Ends at once; the first actor that takes a second job is killed before the job begins."""

    def step(self):
        return {tune.result.DONE: True}

    def reset_config(self, new_config):
        mark = Path(new_config["job"]["mark"])
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return True
