"""Spaces of the post-hoc methods that have settings."""

from tune_calib.spec.space import SPACES, around, choice

_PENALTY = around(1.0)
# None chooses the penalty within calib. No penalty at all serves for warnings, not for searches.
_ODIR = {
    "posthoc.off_diagonal": choice(None, 1e-2, 1.0, 1e2, 1e4, 1e6, 1e8),
    "posthoc.intercept": choice(None, 1e-4, 1e-2, 1.0, 1e2, 1e4),
}

SPACES.register(name="temperature", settings={"posthoc.fit": choice("nll", "grid_ece", "grid_nll")})
SPACES.register(name="matrix", settings=_ODIR)
SPACES.register(name="dirichlet", settings=_ODIR)
SPACES.register(name="ets", settings={"posthoc.loss": choice("brier", "nll")})
SPACES.register(
    name="histogram",
    settings={
        "posthoc.binning": choice("equal_mass", "equal_width"),
        "posthoc.bins": choice(5, 10, 15, 20, 30),
    },
)
SPACES.register(
    name="histogram_toplabel",
    settings={"posthoc.points_per_bin": choice(10, 20, 30, 50, 75, 100, 150, 200)},
)
SPACES.register(
    name="focal_temperature",
    settings={"posthoc.gamma": choice(None, -0.5, 0.0, 0.5, 1.0, 3.0, 5.0)},
)
SPACES.register(
    name="pts",
    settings={
        "posthoc.layers": choice(0, 1, 2, 3),
        "posthoc.nodes": choice(2, 5, 10, 20),
        "posthoc.top": choice(3, 5, 10, 20),
        "posthoc.weight_decay": choice(0.0, 1e-5, 1e-4, 1e-3),
    },
)
_ORDER = {
    "posthoc.width": choice(1, 2, 5, 10, 20, 50),
    "posthoc.weight_decay": choice(0.0, 5e-5, 5e-4, 5e-3),
}
SPACES.register(name="iop_diag", settings=_ORDER)
SPACES.register(name="iop_oi", settings=_ORDER)
SPACES.register(name="iop_op", settings=_ORDER)
SPACES.register(name="spline", settings={"posthoc.knots": choice(4, 5, 6, 8, 10, 15)})
SPACES.register(
    name="svs", settings={"posthoc.lambda_intercept": _PENALTY, "posthoc.lambda_diagonal": _PENALTY}
)
SPACES.register(
    name="sms",
    settings={
        "posthoc.lambda_intercept": _PENALTY,
        "posthoc.lambda_diagonal": _PENALTY,
        "posthoc.lambda_off_diagonal": _PENALTY,
    },
)
_NEIGHBOURS = {"posthoc.neighbours": choice(1, 5, 10, 20, 50, 100, 200)}
SPACES.register(name="dac", settings=_NEIGHBOURS)
SPACES.register(name="procal", settings={**_NEIGHBOURS, "posthoc.groups": choice(2, 3, 5, 10)})
