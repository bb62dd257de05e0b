"""Dirichlet calibration (Kull et al., NeurIPS 2019): softmax(W log p + b), fitted on ``calib``.

The weights of the off-diagonal and intercept regularisation (ODIR) are chosen by cross-validation
on ``calib``, as the authors do. Probabilities are clipped at 1e-12 before the logarithm. A
``calib`` that lacks a class is flagged: log p is always negative and the diagonal is not penalised,
so that the probability of the class would fall without end. Here such a class keeps the scale of
the best temperature and gets no intercept, and the other classes are fitted without it.

With `top_versus_all` (Le Coz et al., NeurIPS 2024, arXiv:2411.02988), the map minimises the binary
cross-entropy of the confidence against whether the prediction is right, plus the penalties and 0.1
mean_i (W_ii - 1)^2, from W = I / T. A penalty that is not given is then that of the sum of squares,
as in the authors' program. The trial is flagged where the search does not end. The authors' map
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
    identity,
    odir,
    regularised,
    scaled,
    top_versus_all_map,
)
from tune_calib.methods._functional import label_log_probs
from tune_calib.methods._posthoc import SMALLEST, Fit, FittedAlone, TopVersusAllParams
from tune_calib.methods.temperature import has_optimum, is_all_right
from tune_calib.metrics.refinement import folds
from tune_calib.spec.methods import METHODS, cited

# From strong to weak: fits with weak penalties take longer and are rarely better.
_OFF_DIAGONAL = (1e8, 1e6, 1e4, 1e2, 1e0, 1e-2)
_INTERCEPT = (1e4, 1e2, 1e0, 1e-2, 1e-4)
_DIAGONAL = 0.1  # weight of the mean square of W_ii - 1, for top-versus-all calibration
_RISE = 1.001  # factor of the held-out NLL; smaller rises may come from inexact fits


class OdirParams(TopVersusAllParams):
    off_diagonal: float | None = Field(None, ge=0)
    """Weight of the mean square of the off-diagonal entries; 0 for no penalty. If none is given, it
    is chosen by 5-fold cross-validation on `calib`: from 1e8 to 0.01 by factors of 100, until the
    NLL rises."""
    intercept: float | None = Field(None, ge=0)
    """Weight of the mean square of the intercept; 0 for no penalty. If none is given, it is chosen
    by 5-fold cross-validation on `calib` among 1e4, 1e2, 1, 1e-2 and 1e-4, with a diagonal map."""


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
            starts = [scaled(inputs[~held], labels[~held]) for held in folds(labels)]
            pairs = [(value, None) for value in (_INTERCEPT if intercept is None else (intercept,))]
            (intercept, _), maps = _chosen(inputs, labels, starts, pairs)
            if off_diagonal is None:
                full_pairs = [(intercept, value) for value in _OFF_DIAGONAL]
                (_, off_diagonal), maps_of_folds = _chosen(inputs, labels, maps, full_pairs, _RISE)
        # The diagonal is not penalised. There is no optimum to reach exactly where calib lacks a
        # class, whose probability would fall without end, or where all samples are correct and the
        # scale would grow without end.
        is_bounded = has_optimum(inputs, labels)
        tolerance = EXACT if is_bounded else ROUGH
        start = regularised(inputs, labels, scaled(inputs, labels), tolerance, intercept)
        affine = regularised(inputs, labels, start, tolerance, intercept, off_diagonal)
        if off_diagonal == 0:
            is_bounded = is_bounded and not is_all_right(affine(inputs), labels)
        states_of_folds = None
        if maps_of_folds is not None:
            states_of_folds = [fold_map.state() for fold_map in maps_of_folds]
        record = {"off_diagonal": off_diagonal, "intercept": intercept}
        is_found = affine.is_converged and is_bounded
        return Fit(affine.state(), record, is_found, of_folds=states_of_folds)

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit, *_: Tensor) -> Fit:
        inputs = self.inputs(logits)
        if self.params.top_versus_all:
            return self._fit_top_versus_all(inputs, labels, full_fit)
        intercept, off_diagonal = full_fit.record["intercept"], full_fit.record["off_diagonal"]
        start = regularised(inputs, labels, scaled(inputs, labels), ROUGH, intercept)
        affine = regularised(inputs, labels, start, ROUGH, intercept, off_diagonal)
        return Fit(affine.state())

    def _fit_top_versus_all(self, inputs: Tensor, labels: Tensor, full_fit: Fit | None) -> Fit:
        classes, off_diagonal = inputs.shape[-1], self.params.off_diagonal
        if off_diagonal is None:  # the weight of a mean that is a sum
            off_diagonal = classes * (classes - 1.0)
        intercept = self.params.intercept
        if intercept is None:
            intercept = float(classes)
        start, ridge = odir(identity(inputs), off_diagonal, intercept)
        weight = torch.as_tensor(ridge.weight).fill_diagonal_(_DIAGONAL / classes)
        ridge = replace(ridge, weight=weight, target=start.weight)
        fit = top_versus_all_map(inputs, labels, ridge, full_fit=full_fit)
        return replace(fit, record={"off_diagonal": off_diagonal, "intercept": intercept})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return Affine(state["weight"], state["intercept"])(self.inputs(logits))


def _chosen(
    inputs: Tensor,
    labels: Tensor,
    maps: Sequence[Affine],
    penalties: Sequence[tuple[float, float | None]],
    rise: float = torch.inf,
) -> tuple[tuple[float, float | None], Sequence[Affine]]:
    """Return the penalties of the smallest held-out NLL, with the maps of the folds.

    Penalties are tried in turn until the NLL rises by a factor. Each fit starts from the previous
    one, which saw the same fold.
    """
    best, best_maps, lowest = penalties[0], maps, torch.inf
    for pair in penalties:
        fitted = []
        for held, start in zip(folds(labels), maps, strict=True):
            fitted.append(regularised(inputs[~held], labels[~held], start, ROUGH, *pair))
        maps = fitted
        score = _score(inputs, labels, maps)
        if score > lowest * rise:
            break
        if score < lowest:
            best, best_maps, lowest = pair, maps, score
    return best, best_maps


def _score(inputs: Tensor, labels: Tensor, maps: Sequence[Affine]) -> float:
    if not maps:
        return 0.0
    values = []
    for held, affine in zip(folds(labels), maps, strict=True):
        values.append(-label_log_probs(affine(inputs[held]), labels[held]))
    return float(torch.cat(values).mean())


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
