"""Spaces of the head methods: of all of them the learning rate and the batch size."""

from tune_calib.spec.space import SPACES, around, bounded, choice

_OPTIMISER = {
    # From TST's Adam to MaC-Cal's SGD.
    "head.lr": around(1e-4, 0.1),
    # The powers of two between the smallest and the largest batch of a recipe.
    "head.batch_size": choice(16, 32, 64, 128, 256),
}
# TST and VTST have none.
_WEIGHT_DECAY = {"head.weight_decay": around(5e-4)}
_BOTTLENECK = ("bottleneck",)

SPACES.register(
    name="mac_cal",
    settings={
        "head.shape": choice("linear", "bottleneck"),
        # None means a quarter of the number of features.
        "head.width": choice(None, 64, 256, head__shape=_BOTTLENECK),
        **_OPTIMISER,
        **_WEIGHT_DECAY,
        "head.q0": bounded(0.3, 0.95, "from the floor of q to almost no masks"),
        "head.gamma": bounded(0.7, 1.0, "a lower target would ask for under-confidence"),
        "head.tau0": bounded(0.0, 0.2, "from a fixed q to one that crosses its range in 4 epochs"),
        "head.tau_decay": bounded(0.0, 5.0, "from constant steps to 1 % of the first at the end"),
        "head.q_min": bounded(0.05, 0.3, "above it the floor could exceed q0, which is refused"),
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
        **_OPTIMISER,
        **_WEIGHT_DECAY,
    },
)

SPACES.register(
    name="tst",
    settings={"head.latent": choice(16, 64, 256), **_OPTIMISER},
    # The width in the authors' example.
    first=({"head.latent": 256, "head.lr": 1e-3},),
)

SPACES.register(
    name="vtst",
    settings={
        "head.latent": choice(16, 64, 256),
        "head.evaluation": choice("mc", "mean"),
        **_OPTIMISER,
        # The second is the weight that the authors' program defines but never reads.
        "head.kl_weight": around(1.0, 0.01),
    },
    first=({"head.kl_weight": 0.01},),
)
