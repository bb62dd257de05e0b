"""Spaces of the head methods; all depend on the learning rate of the retrained head."""

from tune_calib.spec.space import SPACES, choice, log_uniform, uniform

# From far below the published 0.1: readings of one method perform best at rates between 0.001 and
# 0.01 (docs/pages/results.md).
_LR = log_uniform(1e-4, 0.3)
_WEIGHT_DECAY = log_uniform(1e-6, 1e-2)
_BOTTLENECK = ("bottleneck",)

SPACES.register(
    name="mac_cal",
    settings={
        "head.shape": choice("linear", "bottleneck"),
        # None means a quarter of the number of features.
        "head.width": choice(None, 64, 256, head__shape=_BOTTLENECK),
        "head.lr": _LR,
        "head.weight_decay": _WEIGHT_DECAY,
        "head.q0": uniform(0.3, 0.95),
        "head.gamma": uniform(0.7, 1.0),
        "head.tau0": log_uniform(0.005, 0.2),
        "head.tau_decay": uniform(0.0, 5.0),
        # Not above the lower end of q0: a floor above the start is refused.
        "head.q_min": uniform(0.05, 0.3),
    },
    # Tried first but judged on select like all others; the last has the paper's learning rate.
    first=(
        {"head.shape": "bottleneck", "head.lr": 0.01, "head.gamma": 0.75},
        {"head.shape": "linear", "head.lr": 0.01, "head.gamma": 0.75},
        {"head.shape": "bottleneck", "head.lr": 0.1, "head.gamma": 0.95},
    ),
)

SPACES.register(
    name="retrain",
    settings={
        "head.start": choice("fresh", "continued"),
        "head.shape": choice("linear", "bottleneck", head__start=("fresh",)),
        "head.width": choice(None, 64, 256, head__shape=_BOTTLENECK),
        "head.lr": _LR,
        "head.weight_decay": _WEIGHT_DECAY,
    },
)

SPACES.register(
    name="tst",
    settings={"head.latent": choice(16, 64, 256), "head.lr": log_uniform(1e-5, 0.1)},
    # The width in the authors' example.
    first=({"head.latent": 256, "head.lr": 1e-3},),
)

SPACES.register(
    name="vtst",
    settings={
        "head.latent": choice(16, 64, 256),
        "head.evaluation": choice("mc", "mean"),
        "head.lr": log_uniform(1e-5, 0.1),
        "head.kl_weight": log_uniform(1e-3, 10.0),
    },
    # The weight that the authors' program defines but never reads.
    first=({"head.kl_weight": 0.01},),
)
