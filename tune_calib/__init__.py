"""Calibration of neural networks: methods, searches, ablations and a small library.

Public names (docs/pages/python.md, docs/pages/own-network.md) are imported on first use, so that
the command line starts quickly.
"""

from importlib import import_module
from typing import Any

_LIBRARY = {
    "calibration_report": "tune_calib.library.report",
    "CalibratedClassifier": "tune_calib.library.estimators",
    "RetrainedHead": "tune_calib.library.retrained",
    "load_calibrated": "tune_calib.library.calibrated",
    **dict.fromkeys(("calibrate_pool", "save_calibrated"), "tune_calib.library.pool"),
    **dict.fromkeys(
        ("ablate", "compare", "search", "evaluate", "run", "open_results"), "tune_calib.api.calls"
    ),
    **dict.fromkeys(
        ("ranks", "averages", "significance", "benchmark", "diff", "interaction", "effects"),
        "tune_calib.api.statistics",
    ),
    **dict.fromkeys(("sensitivity", "importance"), "tune_calib.api.statistics"),
}


def __getattr__(name: str) -> Any:
    """Return a public name, e.g. ``RetrainedHead`` or an estimator of a post-hoc method."""
    if name in _LIBRARY:
        return getattr(import_module(_LIBRARY[name]), name)
    if name == "plugins":
        return import_module("tune_calib.spec.plugins")
    if name == "ESTIMATORS":  # of the built-in post-hoc methods; those of plug-ins have one too
        methods = import_module("tune_calib.registry").read_index()["tune_calib.methods"]["records"]
        return tuple(sorted(m["class"] for m in methods.values() if m["kind"] == "posthoc"))
    # Python also asks here for modules of the package before it imports them. Their names are in
    # lower case, unlike those of estimators.
    if name[:1].isupper():
        return getattr(import_module("tune_calib.library.estimators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*_LIBRARY, *__getattr__("ESTIMATORS"), "plugins"])
