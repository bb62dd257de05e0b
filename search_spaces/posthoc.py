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
