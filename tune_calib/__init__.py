"""Calibration of neural networks: methods, searches and ablations of them, and a small library.

What Python is offered (docs/pages/python.md, docs/pages/export.md) is imported when it is asked
for, so that the command line starts quickly.
"""

from importlib import import_module
from typing import Any

_LIBRARY = {
    "calibration_report": "tune_calib.report",
    "RetrainedHead": "tune_calib.library.retrained",
    "load_calibrated": "tune_calib.library.calibrated",
    **dict.fromkeys(
        ("ablate", "compare", "search", "evaluate", "run", "open_results"), "tune_calib.api.calls"
    ),
}
_ESTIMATORS = "tune_calib.library.estimators"


def __getattr__(name: str) -> Any:
    """What the library offers, e.g. ``RetrainedHead``, or an estimator of a post-hoc method."""
    if name in _LIBRARY:
        return getattr(import_module(_LIBRARY[name]), name)
    # Modules of the package are asked for here before they are imported: their names are lower
    # case, and those of estimators are not.
    if name[:1].isupper():
        return getattr(import_module(_ESTIMATORS), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
