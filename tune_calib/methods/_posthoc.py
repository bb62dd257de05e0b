"""Parts of post-hoc methods: fits of each classifier, their flags, and piecewise linear curves."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import isotonic_regression, minimize_scalar
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import PostHocMethod
from tune_calib.methods._functional import label_log_probs, weighted_mean
from tune_calib.metrics.binning import top_label
from tune_calib.metrics.refinement import folds, parts_of
from tune_calib.spec.methods import Params

Floats = NDArray[np.float64]

SMALLEST = 1e-12  # probabilities below it are raised to it before a logarithm
_HARM_ERRORS = 1.645  # standard errors, 5 % one-sided
_HARM_SHARE = 0.01  # share of the NLL without a transform
TINY = torch.finfo(torch.float64).tiny
_EQUAL = 1e-15  # width of a group of equal probabilities
_CHUNK = 2**20  # logits transformed at once
_LEAD = 1e-6  # in log-probability, still resolved by float32


@dataclass(frozen=True)
class Fit:
    """The result of a fit to one classifier."""

    state: Mapping[str, Any]  # all that the transform reads; tensors, if the method is storable
    record: Mapping[str, float] = field(default_factory=dict)  # numbers for the trial's result row
    is_converged: bool = True  # whether the solver has found an optimum
    is_at_bound: bool = False  # whether the temperature is an end of its range, for want of a best
    flags: frozenset[str] = frozenset()  # further names of ``names.FLAGS``, except the flag of harm
    # States of the fits without each of the ``folds``, if they are already known.
    of_folds: Sequence[Mapping[str, Tensor]] | None = None

    @property
    def raised(self) -> frozenset[str]:
        """Return the names of all flags of the fit."""
        is_raised = {"posthoc_unconverged": not self.is_converged}
        is_raised["temperature_bound"] = self.is_at_bound
        return self.flags.union(name for name in is_raised if is_raised[name])


class TopVersusAllParams(Params):
    """Parameters of a map that may be fitted to whether predictions are right."""

    top_versus_all: bool = Field(False, exclude_if=lambda is_set: not is_set)  # keeps old hashes
    """Whether the fit asks only whether the predicted class is right."""


class FittedAlone(PostHocMethod):
    """A transform that is fitted to each classifier separately, in float64.

    ``fit`` also checks by cross-validation whether the transform is harmful. A subclass that
    ``reads_features`` gets them, (N, D) float64, as the last argument of ``fit_one`` and ``apply``.
    """

    harm_flag = "posthoc_harms"

    @abstractmethod
    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        """Fit one classifier: (N, C) float64 and (N,), N at least 1."""

    @abstractmethod
    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Transform the logits (N, C) float64 of one classifier, with torch operations only."""

    def fit_fold(self, logits: Tensor, labels: Tensor, full_fit: Fit, *features: Tensor) -> Fit:
        """Fit a part of ``calib`` for cross-validation; ``full_fit`` is the fit to all of it."""
        return self.fit_one(logits, labels, *features)

    @torch.no_grad()
    def fit(self, logits: Tensor, labels: Tensor, *features: Tensor) -> None:
        heads = [head.double() for head in logits]
        features = tuple(part.double() for part in features)
        fits = [self.fit_one(head, labels, *features) for head in heads]
        self._keep_states([fit.state for fit in fits], logits.device)
        self._record: dict[str, Tensor] = {}
        self._flags: dict[str, Tensor] = {}
        for name in fits[0].record:
            numbers = [fit.record[name] for fit in fits]
            self._record[name] = logits.new_tensor(numbers, dtype=torch.float64)
        for name in sorted(frozenset[str]().union(*(fit.raised for fit in fits))):
            self._flags[name] = torch.tensor([name in fit.raised for fit in fits])
        if self.checks_harm:
            pairs = zip(heads, fits, strict=True)
            harms = [self._is_harmful(head, labels, fit, *features) for head, fit in pairs]
            self._flags[self.harm_flag] = torch.tensor([harm is True for harm in harms])
            self._flags["posthoc_unchecked"] = torch.tensor([harm is None for harm in harms])

    def transform(self, logits: Tensor, *features: Tensor) -> Tensor:
        heads = []
        for k, head in enumerate(logits):
            changed = self._apply_in_parts(head, self._state_of(k), *features)
            heads.append(changed.to(logits.dtype))
        return torch.stack(heads)

    def _apply_in_parts(
        self, logits: Tensor, state: Mapping[str, Any], *features: Tensor
    ) -> Tensor:
        """Transform logits (N, C), a few rows at a time to limit memory."""
        width = max(1, _CHUNK // logits.shape[-1])
        if torch.onnx.is_in_onnx_export() or len(logits) <= width:
            return self.apply(logits.double(), state, *(part.double() for part in features))
        parts = zip(*(rows.split(width) for rows in (logits, *features)), strict=True)
        return torch.cat([self._apply_in_parts(part[0], state, *part[1:]) for part in parts])

    def _keep_states(self, states: Sequence[Mapping[str, Any]], device: torch.device) -> None:
        self._state: dict[str, Tensor] = {}
        for name in states[0]:
            self._state[name] = stacked([state[name] for state in states]).to(device)

    def _state_of(self, k: int) -> Mapping[str, Any]:
        return {name: values[k] for name, values in self._state.items()}

    def state(self) -> dict[str, Tensor]:
        return dict(self._state)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._state = dict(state)

    def fitted(self) -> dict[str, Tensor]:
        return self._record

    def flags(self) -> dict[str, Tensor]:
        return self._flags

    def _is_harmful(
        self, logits: Tensor, labels: Tensor, full_fit: Fit, *features: Tensor
    ) -> bool | None:
        """Return whether the cross-validated NLL is larger than without a transform.

        The difference must exceed its noise and 1 %. Without these margins, every second classifier
        that needs no transform would be flagged. None if the transform cannot be fitted to a part
        of calib or applied to the rest, which says nothing about the fit to all of it.
        """
        if len(labels) < 2:
            return False
        without, weights = -label_log_probs(logits, labels), self.weights
        excess = torch.zeros_like(without)
        try:
            for fold, held in enumerate(folds(labels)):
                if full_fit.of_folds is None:
                    self.weights = None if weights is None else weights[~held]
                    others = (part[~held] for part in features)
                    state = self.fit_fold(logits[~held], labels[~held], full_fit, *others).state
                else:
                    state = full_fit.of_folds[fold]
                parts = (part[held] for part in features)
                values = self._apply_in_parts(logits[held], state, *parts)
                excess[held] = -label_log_probs(values, labels[held]) - without[held]
        except Exception:  # of a plug-in or an estimator, whatever its kind
            return None
        finally:
            self.weights = weights
        if not bool(excess.isfinite().all()):
            return None
        error = excess.std() / len(excess) ** 0.5
        if weights is not None:  # of a weighted mean
            gaps = excess - weighted_mean(excess, weights)
            error = (weights * gaps).square().sum().sqrt() / weights.sum()
        least = torch.maximum(_HARM_ERRORS * error, _HARM_SHARE * weighted_mean(without, weights))
        return bool(weighted_mean(excess, weights) > least)


class CurveMap(FittedAlone):
    """A curve of the probability of each class, or with ``top_versus_all`` of the confidence."""

    @abstractmethod
    def values(self, probs: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return the values of K curves at probabilities, both (K, N)."""

    def events(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities and the outcomes in {0, 1} of K curves, both (K, N)."""
        if self.params.top_versus_all:
            confidence, hits = top_label(logits.softmax(-1), labels)
            return confidence[None], hits[None]
        probs = logits.softmax(-1).T
        return probs, F.one_hot(labels, len(probs)).T.to(probs)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        if self.params.top_versus_all:
            confidence = logits.softmax(-1).amax(-1, keepdim=True)
            return with_confidence(logits, self.values(confidence.T, state).T)
        return logarithm(self.values(logits.softmax(-1).T, state).T)


def exact(value: float, like: Tensor) -> Tensor:
    """Return a number as a tensor, which is exported to ONNX in double precision."""
    # The exporter rounds Python numbers to single precision, where 1 - 1e-12 is 1.
    return like.new_tensor(value)


def logarithm(probabilities: Tensor) -> Tensor:
    """Normalise rows (N, C), zeros to uniform ones; return logarithms, at least log 1e-12."""
    total = probabilities.sum(-1, keepdim=True)
    shares = probabilities / total.clamp_min(exact(TINY, total))
    uniform = torch.full_like(shares, 1 / shares.shape[-1])
    return torch.where(total > 0, shares, uniform).clamp_min(SMALLEST).log()


def keep_top(log_probabilities: Tensor, logits: Tensor) -> Tensor:
    """Return normalised log-probabilities (N, C) with the same top class as the logits.

    The top class leads by at least a millionth. Transforms that preserve the order in exact
    arithmetic need this where rounding or a flat section makes several classes equal.
    """
    first = logits.argmax(-1, keepdim=True)
    others = log_probabilities.scatter(-1, first, -torch.inf).amax(-1, keepdim=True)
    first_log_probs = log_probabilities.gather(-1, first)
    raised = log_probabilities.scatter(-1, first, torch.maximum(first_log_probs, others + _LEAD))
    return raised.log_softmax(-1)


def with_confidence(logits: Tensor, confidence: Tensor) -> Tensor:
    """Return log-probabilities (N, C) whose top class has a confidence (N, 1), clipped to 1e-12.

    The other classes share the rest in their original proportions. A confidence below the
    probability of the second class is raised to just above it, so that the top class does not
    change.
    """
    log_probs = logits.log_softmax(-1)
    first = log_probs.argmax(-1, keepdim=True)
    confidence = confidence.clamp(exact(SMALLEST, confidence), exact(1 - SMALLEST, confidence))
    # In logarithms: one minus a saturated confidence is 0, but the sum of the others is not.
    others = log_probs.scatter(-1, first, -torch.inf)
    # Equal to ``logsumexp``, whose counterpart in onnxruntime underflows.
    largest = others.amax(-1, keepdim=True)
    total = (others - largest).exp().sum(-1, keepdim=True).log() + largest
    others = others - total + (-confidence).log1p()
    return keep_top(others.scatter(-1, first, confidence.log()), logits)


def losses_of(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> Tensor:
    """Return the losses (N,) of logits (N, C) and labels, by parts that stay in the cache."""
    return torch.cat([loss(logits[rows], labels[rows]) for rows in parts_of(logits)])


def least_temperature(
    objective: Callable[[float], float],
    grid: Floats,
    tolerance: float = 1e-8,
    at_grid: Sequence[float] | None = None,
) -> float:
    """Return the T that minimises an objective of log T, which need not be convex.

    The best point of a grid is found first, then the best one between its neighbours. ``at_grid``
    replaces the objective at the grid.
    """
    values = [objective(point) for point in grid.tolist()] if at_grid is None else at_grid
    best = int(np.argmin(values))
    ends = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    minimum = minimize_scalar(
        objective, bounds=ends, method="bounded", options={"xatol": tolerance}
    )
    return float(np.exp(minimum.x))


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """Stack tensors of equal shape but for their width; a narrower one repeats its last column."""
    if not parts[0].ndim:
        return torch.stack(list(parts))
    width = max(part.shape[-1] for part in parts)
    ends = [part[..., -1:].expand(*part.shape[:-1], width - part.shape[-1]) for part in parts]
    return torch.stack([torch.cat(pair, -1) for pair in zip(parts, ends, strict=True)])


def isotonic_curves(probs: Tensor, hits: Tensor, weights: Tensor | None = None) -> Tensor:
    """Fit increasing curves of values to outcomes, both (K, N); return their knots (K, 2, M)."""
    weights = torch.ones_like(probs[0]) if weights is None else weights
    curves = []
    for events in zip(probs.contiguous(), hits, strict=True):
        values, targets = (part.cpu().numpy() for part in events)
        curves.append(_isotonic(values, targets, weights.cpu().numpy()))
    return stacked(curves).to(probs.device)


def _isotonic(values: Floats, targets: Floats, weights: Floats) -> Tensor:
    order = values.argsort()
    places = values[order]
    starts = first_of_equal(places)
    hits = np.add.reduceat((weights * targets)[order], starts)
    # Groups without hits that follow each other have the same height.
    is_hit = hits > 0
    runs = np.flatnonzero(is_hit | np.append(True, is_hit[:-1]))
    totals = np.add.reduceat(weights[order], starts[runs])
    heights = isotonic_regression(hits[runs] / totals, weights=totals).x.clip(0, 1)
    # The ends of each flat section suffice; a constant curve needs two as well.
    rises = np.diff(heights, prepend=-1, append=2) != 0
    lasts = np.append(runs[1:], len(starts)) - 1
    ends = np.union1d(runs[rises[:-1]], lasts[rises[1:]])
    ends = ends.repeat(2) if len(ends) == 1 else ends
    heights = heights[runs.searchsorted(ends, "right") - 1]
    return torch.from_numpy(np.stack([places[starts[ends]], heights]))


def first_of_equal(values: Floats) -> NDArray[np.intp]:
    """Return the positions in sorted values (N,) of the first ones of each group of equal ones.

    As in scikit-learn, values that differ from the first one by less than 1e-15 are equal.
    """
    is_first = np.append(True, np.diff(values) >= _EQUAL)
    bounds = np.flatnonzero(np.diff(is_first, append=True)).reshape(-1, 2) + np.arange(2)
    is_wide = values[bounds[:, 1] - 1] - values[bounds[:, 0]] >= _EQUAL
    # Where close values form a chain, a group ends at a distance from its first value.
    for start, end in bounds[is_wide]:
        chain = values[start:end]
        following = chain.searchsorted(chain + _EQUAL).tolist()
        first = following[0]
        while first < len(chain):
            is_first[start + first] = True
            first = following[first]
    return np.flatnonzero(is_first)


def count_below(places: Tensor, values: Tensor) -> Tensor:
    """Count the sorted places (C, M) that do not exceed each of the values (C, N): (C, N)."""
    # Exported models use bisection: ``torch.searchsorted`` cannot be exported to ONNX.
    if not torch.onnx.is_in_onnx_export():
        return torch.searchsorted(places.contiguous(), values.contiguous(), right=True)
    size = places.shape[1]
    counts = torch.zeros_like(values, dtype=torch.int64)
    step = 1 << size.bit_length()
    while step := step // 2:
        further = counts + step
        reached = places.gather(1, further.clamp(max=size) - 1) <= values
        counts = torch.where((further <= size) & reached, further, counts)
    return counts


def interpolate(values: Tensor, knots: Tensor) -> Tensor:
    """Evaluate curves (C, 2, M) at values (C, N), linear between knots and constant outside."""
    places, heights = knots[:, 0], knots[:, 1]
    above = count_below(places, values).clamp(1, places.shape[1] - 1)
    left, right = places.gather(1, above - 1), places.gather(1, above)
    low, high = heights.gather(1, above - 1), heights.gather(1, above)
    share = ((values - left) / (right - left).clamp_min(exact(TINY, values))).clamp(0, 1)
    return low + share * (high - low)
