"""Spaces of the head methods: of all of them the optimiser's settings, over equal ranges."""

from tune_calib.spec.space import SPACES, around, bounded, choice

_OPTIMISER = {
    "head.lr": bounded(1e-4, 0.3, "from TST's rate for Adam to three times MaC-Cal's", log=True),
    # MaC-Cal's code base sums the loss over the batch and clips the gradient.
    "head.loss_reduction": choice("mean", "sum"),
    "head.clip_grad_norm": choice(2.0, head__loss_reduction=("sum",)),
    # The powers of two between the smallest and the largest batch of a recipe.
    "head.batch_size": choice(16, 32, 64, 128, 256),
}
# TST and VTST have none.
_WEIGHT_DECAY = {"head.weight_decay": around(5e-4)}
# None means a quarter of the number of features.
_WIDTH = choice(None, 64, 128, 256, 512, head__shape=("bottleneck",))

SPACES.register(
    name="mac_cal",
    settings={
        "head.shape": choice("linear", "bottleneck"),
        "head.width": _WIDTH,
        **_OPTIMISER,
        **_WEIGHT_DECAY,
        "head.q0": bounded(0.3, 0.95, "from the floor of q to almost no masks"),
        "head.gamma": choice("val_ratio", 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0),
        "head.tau0": bounded(0.0, 0.2, "from a fixed q to one that crosses its range in 4 epochs"),
        "head.tau_decay": bounded(0.0, 5.0, "from constant steps to 1 % of the first at the end"),
        "head.q_min": bounded(0.05, 0.3, "above it the floor could exceed q0, which is refused"),
        "head.masked_update": choice("grad_only", "freeze"),
        "head.statistics": choice("masked_running", "eval_head_pass"),
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
        "head.width": _WIDTH,
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
