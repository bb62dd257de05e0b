"""Samplers of searches, which draw each suggestion anew from a seed and the results so far."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tune_calib.registry import Registry


@dataclass(frozen=True)
class Sampler:
    """A sampler of settings."""

    name: str
    title: str
    build: Callable[[int], Any]  # Optuna's sampler from a seed; its import is slow
    tries_grid: bool = False  # tries the combinations of all levels instead of drawing points
    is_local: bool = False  # of these, only those that differ from one point in one setting
    is_sequence: bool = False  # suggestion n is point n of a Sobol sequence, whatever the results
    needs_all: bool = False  # of no use if race or halving leave suggestions incomplete


def _builder(kind: str, **options: Any) -> Callable[[int], Any]:
    def build(seed: int) -> Any:
        from optuna import exceptions, samplers

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", exceptions.ExperimentalWarning)
            return getattr(samplers, kind)(seed=seed, **options)

    return build


_TPE = _builder("TPESampler", multivariate=True, group=True, constant_liar=True)
build_random = _builder("RandomSampler")
SAMPLERS: Registry[Sampler] = Registry("sampler", "tune_calib.spec.samplers", Sampler)
SAMPLERS.register(Sampler("tpe", "tree-structured Parzen estimator", _TPE))
SAMPLERS.register(Sampler("random", "random points", build_random))
SAMPLERS.register(Sampler("gp", "Gaussian process", _builder("GPSampler")))
SAMPLERS.register(Sampler("qmc", "scrambled Sobol sequence", build_random, is_sequence=True))
SAMPLERS.register(
    Sampler("nsga2", "genetic algorithm NSGA-II", _builder("NSGAIISampler"), needs_all=True)
)
SAMPLERS.register(Sampler("grid", "every combination of levels", build_random, tries_grid=True))
SAMPLERS.register(
    Sampler("one-at-a-time", "each setting alone", build_random, tries_grid=True, is_local=True)
)
