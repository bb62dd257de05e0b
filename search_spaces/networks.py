"""Spaces of the network methods; the optimiser is searched where a method depends on it."""

from tune_calib.spec.space import SPACES, Point, Setting, Space, choice, log_uniform, uniform

_LR = {"network.lr": log_uniform(0.01, 0.3)}
# From the learning rate of Adam, which the authors use, to that of SGD.
_WIDE_LR = {"network.lr": log_uniform(1e-5, 0.3)}
_WEIGHT_DECAY = {"network.weight_decay": log_uniform(1e-5, 1e-2)}


def _register(method: str, settings: dict[str, Setting], *first: Point) -> None:
    SPACES.register(Space(method, settings, first))


_register("ce", {**_LR, **_WEIGHT_DECAY})
# The authors lower the learning rate to 0.035 where 0.1 diverges.
_register("brier", {**_LR, **_WEIGHT_DECAY}, {"network.lr": 0.035})
_register(
    "ls",
    {"network.alpha": log_uniform(0.005, 0.3)},
    # The values of FeDLaS for CIFAR-100 and of BalCAL.
    {"network.alpha": 0.1},
    {"network.alpha": 0.03},
)
_register(
    "mbls",
    {"network.margin": uniform(0.0, 20.0), "network.alpha": log_uniform(0.01, 1.0)},
    # For Tiny-ImageNet: from MbLS's README and from FeDLaS's text.
    {"network.margin": 10.0, "network.alpha": 0.1},
    {"network.margin": 10.0, "network.alpha": 0.05},
)
_register(
    "acls",
    {
        "network.margin": uniform(0.0, 20.0),
        "network.alpha": log_uniform(0.01, 1.0),
        "network.pos_lambda": log_uniform(0.01, 10.0),
        "network.neg_lambda": log_uniform(0.01, 10.0),
        "network.positive_distance": choice("raw_max", "max_minus_min"),
    },
    {"network.margin": 10.0},
)
_register("fl", {"network.gamma": uniform(0.0, 10.0)}, {"network.gamma": 1.0})
_register("flsd", {"network.gamma": uniform(0.0, 10.0)}, {"network.gamma": 2.0})
_register(
    "dfl",
    {"network.gamma": uniform(0.0, 10.0)},
    # Tuned by the authors for other networks and data sets.
    *({"network.gamma": gamma} for gamma in (2.3, 2.6, 3.4, 3.9, 4.5, 6.1)),
)
_register(
    "adafocal",
    {
        "network.lam": log_uniform(0.1, 10.0),
        "network.switch_pt": uniform(0.0, 1.0),
        "network.gamma_max": uniform(2.0, 20.0),
        "network.gamma_min": uniform(-5.0, -0.5),
    },
)
_register("ecp", {"network.alpha": log_uniform(0.01, 10.0)})
_register(
    "cpc",
    {"network.lambda_bdc": log_uniform(0.01, 10.0), "network.lambda_bec": log_uniform(0.01, 10.0)},
)
_register("mmce", {"network.lam": log_uniform(0.1, 20.0)}, {"network.lam": 2.0})
_register(
    "mmce_weighted",
    {"network.lam": log_uniform(0.1, 20.0), "network.normalisation": choice("code", "paper")},
    # From the original paper's experiments with text.
    {"network.lam": 8.0},
)
_register(
    "mdca",
    {
        "network.pairing": choice("nll", "fl", "ls_wrong_only"),
        "network.beta": log_uniform(0.1, 20.0),
        "network.gamma": uniform(0.0, 5.0, network__pairing=("fl",)),
        "network.alpha": log_uniform(0.005, 0.3, network__pairing=("ls_wrong_only",)),
    },
    {"network.pairing": "fl", "network.gamma": 3.0},
    {"network.pairing": "nll"},
)
_register(
    "crl",
    {
        "network.weight": log_uniform(0.01, 10.0),
        "network.target": choice("softmax", "entropy", "margin"),
    },
)
_register(
    "mixup",
    {"network.alpha": log_uniform(0.05, 4.0), **_WEIGHT_DECAY},
    {"network.alpha": 0.4},
    {"network.alpha": 0.2},
)
for _mit in ("mit_a", "mit_l"):
    _register(
        _mit,
        {
            "network.alpha": log_uniform(0.05, 4.0),
            "network.margin": uniform(0.0, 0.8),
            **_WEIGHT_DECAY,
        },
        {"network.alpha": 1.0, "network.margin": 0.0},
    )
_register("plp", {"network.gamma": log_uniform(0.3, 3.0), **_WEIGHT_DECAY}, {"network.gamma": 0.5})
_register("balcal", {"network.delta": uniform(0.8, 1.0), **_WIDE_LR}, {"network.delta": 1.0})

_FEDLAS = {
    "network.alpha": log_uniform(0.005, 0.3),
    "network.beta": log_uniform(0.1, 10.0),
    "network.theta": uniform(0.0, 1.0),
}
# The published values for CIFAR-100 here, and for CIFAR-100 and Tiny-ImageNet below.
_register("fedlas_ls", _FEDLAS, {"network.alpha": 0.1, "network.theta": 0.5})
_register(
    "fedlas_mbls",
    {**_FEDLAS, "network.margin": uniform(0.0, 20.0)},
    {"network.beta": 1.0, "network.theta": 0.5},
    {"network.alpha": 0.05, "network.margin": 10.0, "network.theta": 0.5},
)
for _joint in ("tst_joint", "vtst_joint"):
    _register(
        _joint,
        {**_LR, **_WEIGHT_DECAY, "network.latent": choice(10, 64, 256)},
        # The default of TST's program; its example uses 256.
        {"network.latent": 10},
    )
