"""A plug-in with which trainings of seconds write checkpoints as often as those of hours do."""

from tune_calib.engine import artifacts
from tune_calib.spec.backbones import BACKBONES

artifacts.CHECKPOINT_S = 0

# A plug-in registers something.
BACKBONES.register(name="unused", title="unused", build=lambda channels, size, init: None)
