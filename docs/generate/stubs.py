"""Generate type stubs of the public Python functions, for editors and type checkers.

``make generate`` writes ``tune_calib/__init__.pyi``; ``tests/api/test_calls.py`` compares it.
"""

import inspect
from pathlib import Path
from typing import Any

import tune_calib
from tune_calib.api.calls import format_type

PATH = Path(tune_calib.__file__).with_suffix(".pyi")
_CALLS = (
    "ablate", "compare", "search", "evaluate", "run", "open_results", "ranks", "averages",
    "significance", "benchmark", "diff", "interaction", "effects", "sensitivity", "importance",
)  # fmt: skip
_HEAD = '''"""The public Python names; made by ``make generate``."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from tune_calib.api.opened import OpenSearch, OpenRun, OpenExperiment
from tune_calib.api.statistics import Statistics
from tune_calib.library.calibrated import load_calibrated as load_calibrated
from tune_calib.library.estimators import CalibratedClassifier as CalibratedClassifier
from tune_calib.library.estimators import PostHocEstimator
from tune_calib.library.pool import calibrate_pool as calibrate_pool
from tune_calib.library.pool import save_calibrated as save_calibrated
from tune_calib.library.report import calibration_report as calibration_report
from tune_calib.library.retrained import RetrainedHead as RetrainedHead
from tune_calib.spec import plugins as plugins

ESTIMATORS: tuple[str, ...]
'''


def build_stubs() -> str:
    """Return the text of the stub file."""
    parts = [_HEAD]
    parts += [_function(name, getattr(tune_calib, name)) for name in _CALLS]
    parts += [_class(name, getattr(tune_calib, name)) for name in tune_calib.ESTIMATORS]
    return "\n".join(parts)


def _function(name: str, call: Any) -> str:
    signature = inspect.signature(call)
    lines, is_keyword = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            lines.append("    *,")
        lines.append(f"    {_parameter(parameter)},")
    returned = format_type(signature.return_annotation)
    return "\n".join([f"def {name}(", *lines, f") -> {returned}: ..."])


def _class(name: str, estimator: Any) -> str:
    fields = list(map(_parameter, inspect.signature(estimator).parameters.values()))
    head = f"class {name}(PostHocEstimator):"
    if not fields:
        return f"{head} ..."
    return f"{head}\n    def __init__(self, *, {', '.join(fields)}) -> None: ..."


def _parameter(parameter: inspect.Parameter) -> str:
    text = f"{parameter.name}: {format_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {parameter.default!r}"
    return text


if __name__ == "__main__":
    PATH.write_text(build_stubs())
