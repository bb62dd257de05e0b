"""Calibrators of the library probmetrics, as methods ``probmetrics:NAME``.

They are those of the benchmark CalArena (arXiv 2605.30188). NAME is that of the class without
``Calibrator``, or one of ``_BY_FACTORY``. Calibrators of two classes are fitted to each class
against the rest, and the rows of their results are normalised.
"""

import importlib
import logging
import warnings
from collections.abc import Callable
from functools import cache, update_wrapper
from types import ModuleType
from typing import Any

from tune_calib.errors import UserError
from tune_calib.methods._estimator import from_estimator
from tune_calib.spec.methods import METHODS, MethodInfo

_PREFIX, _SUFFIX = "probmetrics:", "Calibrator"
_BY_FACTORY = ("platt", "isotonic")  # names that ``get_calibrator`` takes
_WITH_PARTS = ("", "MulticlassOneVsOne", "MulticlassOneVsRest", "Mixture", "Sklearn")
_OF_TWO_CLASSES = (
    "Betacal", "BinaryCatBoost", "BinaryHistogramBinning", "BinaryLogistic", "BinaryPlattBinner",
    "BinaryVennAbers", "CDFSpline", "CenteredIsotonicRegression", "NetcalENIR",
    "RegularizedAffineScaling", "RegularizedQuadraticScaling",
)  # fmt: skip


@cache
def _library() -> ModuleType:
    logging.getLogger("probmetrics").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("probmetrics.calibrators")


@cache
def list_calibrators() -> list[str]:
    """Return the names of all calibrators that can be built without arguments."""
    classes = [name for name in _library().__all__ if name.endswith(_SUFFIX)]
    names = [name.removesuffix(_SUFFIX) for name in classes]
    return [_PREFIX + name for name in (*_BY_FACTORY, *names) if name not in _WITH_PARTS]


@cache
def find_calibrator(name: str) -> MethodInfo | None:
    """Return the record of a calibrator, or None for other names."""
    if not name.startswith(_PREFIX):
        return None
    try:
        if name not in list_calibrators():
            return None
    except ImportError:
        raise UserError(
            f"{name} needs another library: pip install 'tune-calib[probmetrics]'"
        ) from None
    short_name = name.removeprefix(_PREFIX)
    return from_estimator(
        name,
        find_class(short_name),
        title=f"{short_name} of probmetrics",
        paper="probmetrics",
        year=2026,
        url="https://github.com/dholzmueller/probmetrics",
    )


def find_class(name: str) -> Callable[..., Any]:
    """Return the class of a calibrator of any number of classes, or a function that builds one."""
    library = _library()
    if name in _BY_FACTORY:

        def get_calibrator() -> Any:
            return library.get_calibrator(name)

        return get_calibrator
    calibrator: Callable[..., Any] = getattr(library, name + _SUFFIX)
    if name not in _OF_TWO_CLASSES:
        return calibrator

    def one_vs_rest(**settings: Any) -> Any:
        return library.MulticlassOneVsRestCalibrator(calibrator(**settings))

    return update_wrapper(one_vs_rest, calibrator, updated=())


METHODS.register_family(find_calibrator, list_calibrators)
