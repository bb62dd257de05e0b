"""Dirichlet calibration (Kull et al., NeurIPS 2019): softmax(W log p + b), fitted on ``calib``.

The weights of the off-diagonal and intercept regularisation (ODIR) are chosen by cross-validation
on ``calib``, as the authors do. Probabilities are clipped at 1e-12 before the logarithm. A
``calib`` that lacks a class is flagged: log p is always negative and the diagonal is not penalised,
so that the probability of the class would fall without end. Here such a class keeps the scale of
the best temperature and gets no intercept, and the other classes are fitted without it.

With `top_versus_all` (Le Coz et al., NeurIPS 2024, arXiv:2411.02988), the map minimises the binary
cross-entropy of the confidence against whether the prediction is right, plus the penalties and 0.1
mean_i (W_ii - 1)^2, from W = I / T. It is flagged where the search does not end. The authors' map
of this name acts on logits, as `matrix` does here, and takes 200 steps of 0.001, which do not
arrive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log

import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._affine import (
    EXACT,
    ROUGH,
    Affine,
    Ridge,
    diagonal,
    minimised,
    scaled,
    top_versus_all_map,
)
from tune_calib.methods._functional import label_log_probs
from tune_calib.methods._posthoc import SMALLEST, UNCONVERGED, Fit, FittedAlone
from tune_calib.methods.temperature import has_optimum, is_all_right
from tune_calib.metrics.refinement import folds
from tune_calib.spec.methods import METHODS, Params, cited

# From strong to weak: fits with weak penalties take longer and are rarely better.
_OFF_DIAGONAL = (1e8, 1e6, 1e4, 1e2, 1e0, 1e-2)
_INTERCEPT = (1e4, 1e2, 1e0, 1e-2, 1e-4)
_DIAGONAL = 0.1  # weight of the mean square of W_ii - 1, for top-versus-all calibration
_RISE = 1.001  # factor of the held-out NLL; smaller rises may come from inexact fits


class OdirParams(Params):
    off_diagonal: float | None = Field(None, ge=0)
    """Weight of the mean square of the off-diagonal entries; 0 for no penalty. If none is given, it
    is chosen by 5-fold cross-validation on `calib`: from 1e8 to 0.01 by factors of 100, until the
    NLL rises."""
    intercept: float | None = Field(None, ge=0)
    """Weight of the mean square of the intercept; 0 for no penalty. If none is given, it is chosen
    by 5-fold cross-validation on `calib` among 1e4, 1e2, 1, 1e-2 and 1e-4, with a diagonal map."""
    top_versus_all: bool = Field(False, exclude_if=lambda is_set: not is_set)  # keeps old hashes
    """Whether the map minimises the binary cross-entropy of the confidence. A penalty that is not
    given is then that of the sum of squares, as in the authors' program."""


class DirichletCalibration(FittedAlone):
    """W x + b, fitted by the NLL plus lambda mean_{i != j} W_ij^2 + mu mean_j b_j^2."""

    def inputs(self, logits: Tensor) -> Tensor:
        """Return the inputs of the map: log-probabilities, at least log 1e-12."""
        return logits.log_softmax(-1).clamp_min(log(SMALLEST))

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        inputs = self.inputs(logits)
        if self.params.top_versus_all:
            return self._fit_top_versus_all(inputs, labels, None)
        intercept, off_diagonal = self.params.intercept, self.params.off_diagonal
        maps_of_folds = None
        if intercept is None or off_diagonal is None:
            intercept, starts = _chosen_intercept(inputs, labels, intercept)
            if off_diagonal is None:
                off_diagonal, maps_of_folds = _chosen_off_diagonal(
                    inputs, labels, intercept, starts
                )
        # The diagonal is not penalised. There is no optimum to reach exactly where calib lacks a
        # class, whose probability would fall without end, or where all samples are correct and the
        # scale would grow without end.
        is_bounded = has_optimum(inputs, labels)
        tolerance = EXACT if is_bounded else ROUGH
        start = diagonal(inputs, labels, scaled(inputs, labels), tolerance, intercept)
        affine = _full(inputs, labels, off_diagonal, intercept, start, tolerance)
        if off_diagonal == 0:
            is_bounded = is_bounded and not is_all_right(affine(inputs), labels)
        is_found = affine.is_converged and is_bounded
        flags = frozenset() if is_found else frozenset({UNCONVERGED})
        states_of_folds = None
        if maps_of_folds is not None:
            states_of_folds = [fold_map.state() for fold_map in maps_of_folds]
        record = {"off_diagonal": off_diagonal, "intercept": intercept}
        return Fit(affine.state(), record, flags, of_folds=states_of_folds)

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit) -> Fit:
        inputs, penalties = self.inputs(logits), full_fit.record
        if self.params.top_versus_all:
            return self._fit_top_versus_all(inputs, labels, full_fit)
        intercept = penalties["intercept"]
        start = diagonal(inputs, labels, scaled(inputs, labels), ROUGH, intercept)
        affine = _full(inputs, labels, penalties["off_diagonal"], intercept, start, ROUGH)
        return Fit(affine.state())

    def _fit_top_versus_all(self, inputs: Tensor, labels: Tensor, full_fit: Fit | None) -> Fit:
        classes, (off_diagonal, intercept) = inputs.shape[-1], self._penalties_of_sums(inputs)
        target = torch.eye(classes).to(inputs)
        weight = torch.full_like(target, off_diagonal / max(1, classes * (classes - 1)))
        weight.fill_diagonal_(_DIAGONAL / classes)
        ridge = Ridge(weight, target, intercept / classes)
        fit = top_versus_all_map(inputs, labels, ridge, full_fit=full_fit)
        return replace(fit, record={"off_diagonal": off_diagonal, "intercept": intercept})

    def _penalties_of_sums(self, inputs: Tensor) -> tuple[float, float]:
        """Return both penalties; by default, those for which their means become sums."""
        classes, off_diagonal = inputs.shape[-1], self.params.off_diagonal
        if off_diagonal is None:
            off_diagonal = classes * (classes - 1.0)
        intercept = self.params.intercept
        return off_diagonal, float(classes) if intercept is None else intercept

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return Affine(state["weight"], state["intercept"])(self.inputs(logits))


def _chosen_intercept(
    inputs: Tensor, labels: Tensor, fixed_penalty: float | None
) -> tuple[float, list[Affine]]:
    """Choose the penalty of the intercept; return it with the diagonal maps of the folds."""
    held_out = folds(labels)
    starts = [scaled(inputs[~held], labels[~held]) for held in held_out]
    tried: dict[float, list[Affine]] = {}
    penalties = _INTERCEPT if fixed_penalty is None else (fixed_penalty,)
    for penalty in penalties:
        # Each fit starts from the previous one, which saw the same fold.
        tried[penalty] = []
        for held, start in zip(held_out, starts, strict=True):
            affine = diagonal(inputs[~held], labels[~held], start, ROUGH, penalty)
            tried[penalty].append(affine)
        starts = tried[penalty]
    best = min(tried, key=lambda penalty: _score(inputs, labels, tried[penalty]))
    return best, tried[best]


def _chosen_off_diagonal(
    inputs: Tensor, labels: Tensor, intercept: float, starts: Sequence[Affine]
) -> tuple[float, Sequence[Affine]]:
    """Choose the off-diagonal penalty; return it with the maps of the folds."""
    best, best_maps = _OFF_DIAGONAL[0], starts
    lowest, held_out = torch.inf, folds(labels)
    if not held_out:
        return best, best_maps
    for penalty in _OFF_DIAGONAL:
        # Each fit starts from the previous one, which saw the same fold.
        maps = []
        for held, start in zip(held_out, starts, strict=True):
            maps.append(_full(inputs[~held], labels[~held], penalty, intercept, start, ROUGH))
        starts = maps
        score = _score(inputs, labels, starts)
        if score > lowest * _RISE:
            break
        if score < lowest:
            best, best_maps, lowest = penalty, starts, score
    return best, best_maps


def _score(inputs: Tensor, labels: Tensor, maps: Sequence[Affine]) -> float:
    if not maps:
        return 0.0
    values = []
    for held, affine in zip(folds(labels), maps, strict=True):
        values.append(-label_log_probs(affine(inputs[held]), labels[held]))
    return float(torch.cat(values).mean())


def _full(
    inputs: Tensor,
    labels: Tensor,
    off_diagonal: float,
    intercept: float,
    start: Affine,
    tolerance: float,
) -> Affine:
    classes = inputs.shape[-1]
    full = start.weight if start.weight.ndim == 2 else start.weight.diag()
    weight = torch.full_like(full, off_diagonal / max(1, classes * (classes - 1)))
    weight.fill_diagonal_(0)
    ridge = Ridge(weight, torch.zeros_like(full), intercept / classes)
    start = replace(start, weight=full)
    return minimised(inputs, labels, ridge, start, tolerance, is_missing_kept=True)


METHODS.register(
    name="dirichlet",
    is_quadratic=True,
    title="Dirichlet calibration with ODIR",
    **cited("Kull et al., NeurIPS", "kull2019beyond"),
    formula=r"""
        q = \operatorname{softmax}(W \log p + b),
        \quad W, b = \operatorname{argmin}_{W, b} \frac{1}{N} \sum_{i \in \mathrm{calib}}
            -\log q_{i, y_i}
            + \frac{\lambda}{C (C - 1)} \sum_{j \neq k} W_{jk}^2
            + \frac{\mu}{C} \sum_j b_j^2
    """,
    params=OdirParams,
    implementation=DirichletCalibration,
    keeps_accuracy=False,
)
