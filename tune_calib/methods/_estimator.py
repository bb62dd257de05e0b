"""Post-hoc methods by estimators in scikit-learn's style, which map probabilities to others."""

import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import create_model, model_validator
from torch import Tensor

from tune_calib.errors import DivergedError, UserError
from tune_calib.methods._posthoc import SMALLEST, Fit, FittedAlone, logarithm
from tune_calib.spec.methods import MethodInfo, Params

# Parameters that no number depends on, and those that a slot has fields for.
_NOT_SETTINGS = ("device", "n_jobs", "print_init_info", "verbose", "method", "params", "plugin")
_PLAIN = (bool, int, float, str, type(None))
_ROUNDED = 1e-5  # relative deviation of probabilities, or their sum, by float32 logarithms


class EstimatorParams(Params):
    """Parameters of the constructor of an estimator, which also checks their values."""

    estimator: ClassVar[Callable[..., Any]]

    def build(self) -> Any:
        return type(self).estimator(**self.model_dump())

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        try:
            with _reproducible():
                self.build()
        except ImportError as error:
            raise UserError(
                f"{error} Install that package, or all: pip install 'tune-calib[probmetrics]'"
            ) from None
        return self


class EstimatorTransform(FittedAlone):
    """A transform of the probabilities of one classifier by an estimator."""

    is_storable = False

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        """Fit an estimator; a warning of it, e.g. that it keeps its initial values, is a flag."""
        with self._errors_described() as caught:
            estimator = self.params.build()
            estimator.fit(probabilities(logits).cpu().numpy(), labels.cpu().numpy())
        is_converged = True
        for warning in caught:
            is_arithmetic = "encountered" in str(warning.message)
            if issubclass(warning.category, UserWarning | RuntimeWarning) and not is_arithmetic:
                is_converged = False
        state = {"estimator": estimator, "present": labels.unique()}
        return Fit(state, is_converged=is_converged)

    def apply(self, logits: Tensor, state: Mapping[str, Any]) -> Tensor:
        """Return log-probabilities; a class without a column in the result has probability 0."""
        with self._errors_described():
            values = state["estimator"].predict_proba(probabilities(logits).cpu().numpy())
            columns = torch.as_tensor(np.array(values, np.float64), device=logits.device)
            if not ((columns > -_ROUNDED) & (columns < 1 + _ROUNDED)).all():
                raise ValueError("it returns numbers that are no probabilities")
            if columns.shape != logits.shape:
                columns = torch.zeros_like(logits).index_copy_(1, state["present"], columns)
        return logarithm(columns)

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        raise UserError(f"{type(self.params).__name__} cannot be restored from a file")

    def _keep_states(self, states: Sequence[Mapping[str, Any]], device: torch.device) -> None:
        self._states = states

    def _state_of(self, k: int) -> Mapping[str, Any]:
        return self._states[k]

    @contextmanager
    def _errors_described(self) -> Iterator[list[warnings.WarningMessage]]:
        try:
            with _reproducible() as caught:
                yield caught
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            message = f"{type(self.params).__name__} failed on calib or its results: {reason}"
            raise DivergedError(message) from None


@contextmanager
def _reproducible() -> Iterator[list[warnings.WarningMessage]]:
    numpy_state = np.random.get_state()
    try:
        with (
            torch.random.fork_rng(),
            torch.enable_grad(),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            np.random.seed(0)
            torch.manual_seed(0)
            if "numba" in sys.modules:
                _numba_seeder()()
            yield caught
    finally:
        np.random.set_state(numpy_state)


@cache
def _numba_seeder() -> Any:
    import numba

    @numba.njit
    def seed() -> None:
        np.random.seed(0)

    return seed


def probabilities(logits: Tensor) -> Tensor:
    """Return the softmax of logits (N, C), but of log-probabilities the probabilities themselves.

    Normalised again, equal probabilities of two samples would differ in their last digits. Zeros
    were raised to ``SMALLEST`` before the logarithm.
    """
    probs = logits.exp().clamp(max=1)
    probs = torch.where((probs / SMALLEST - 1).abs() < _ROUNDED, 0, probs)
    is_normalised = logits.logsumexp(-1, keepdim=True).abs() < _ROUNDED
    return torch.where(is_normalised, probs, logits.softmax(-1))


def from_estimator(name: str, estimator: Callable[..., Any], **record: Any) -> MethodInfo:
    """Return the record of a post-hoc method that is an estimator in scikit-learn's style.

    The estimator is fitted to probabilities (N, C), float64, and labels (N,) of ``calib`` by
    ``fit``, and ``predict_proba`` maps probabilities to calibrated ones. Parameters of its
    constructor with plain defaults are settings of the method.

    Args:
        name: registry key.
        estimator: class of the estimator, or a function that builds one.
        record: fields of ``MethodInfo``, among them ``paper``, ``year`` and ``url``.
    """
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(estimator).parameters.values():
        default, kind = parameter.default, parameter.annotation
        if parameter.name in _NOT_SETTINGS or not isinstance(default, _PLAIN):
            continue
        if kind is parameter.empty:
            kind = bool | int | float | str if default is None else type(default)
        fields[parameter.name] = (kind | None if default is None else kind, default)
    params = create_model(name, __base__=EstimatorParams, **fields)
    params.estimator = staticmethod(estimator)
    text = inspect.cleandoc(estimator.__doc__ or "").replace("*", r"\*")  # it is not Markdown
    defaults: dict[str, Any] = {"title": estimator.__name__, "keeps_accuracy": False, "text": text}
    defaults |= {"params": params, "implementation": EstimatorTransform}
    return MethodInfo(name=name, **defaults | record)
