"""Samplers of searches, which draw each suggestion anew from a seed and the results so far."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tune_calib.registry import Registry

# Importing Optuna takes a third of a second; requests only name samplers.
if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass(frozen=True)
class Sampler:
    """A sampler of settings."""

    name: str
    title: str
    build: Callable[[int], "BaseSampler"]  # from a seed
    tries_grid: bool = False  # tries the combinations of all levels instead of drawing points


def _build_tpe(seed: int) -> "BaseSampler":
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import TPESampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return TPESampler(multivariate=True, group=True, constant_liar=True, seed=seed)


def build_random(seed: int) -> "BaseSampler":
    """Build a sampler of random points."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def _build_nsga2(seed: int) -> "BaseSampler":
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed)


SAMPLERS: Registry[Sampler] = Registry("sampler", "tune_calib.spec.samplers", Sampler)
SAMPLERS.register(Sampler("tpe", "tree-structured Parzen estimator", _build_tpe))
SAMPLERS.register(Sampler("random", "random points", build_random))
SAMPLERS.register(Sampler("nsga2", "genetic algorithm NSGA-II", _build_nsga2))
SAMPLERS.register(Sampler("grid", "every combination of levels", build_random, tries_grid=True))
