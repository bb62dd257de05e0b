"""Spaces of the post-hoc methods."""

from tune_calib.registry import SPACES
from tune_calib.space import Space, choice

SPACES.register(Space("temperature", {"posthoc.fit": choice("nll", "grid_ece", "grid_nll")}))
