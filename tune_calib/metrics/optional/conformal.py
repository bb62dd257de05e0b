"""Conformal sets by other scores, as a plug-in: ``--plugin tune_calib.metrics.optional.conformal``.

``tune_calib.metrics.conformal`` defines them.
"""

from functools import partial

from tune_calib.spec.metrics import INF, METRICS, Metric

_conformal = partial(Metric, module="conformal", is_in_searches=False, needs_calib=True)
_TITLES = {
    "aps": "APS",
    "unrandomised_aps": "Unrandomised APS",
    "raps": "RAPS",
    "class_conditional": "Class-conditional",
}
for _name, _title in _TITLES.items():
    METRICS.register(
        _conformal(f"{_name}_size", f"{_title} set size at 90 %", "min", "score", upper=INF)
    )
    METRICS.register(
        _conformal(f"{_name}_coverage", f"{_title} coverage at 90 %", None, "fraction")
    )
