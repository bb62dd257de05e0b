"""Spaces of the post-hoc methods."""

from search_spaces._space import Space, choice
from tune_calib.registry import SPACES

SPACES.register("temperature", Space({"posthoc.fit": choice("nll", "grid_ece", "grid_nll")}))
