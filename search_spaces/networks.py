"""Spaces of the network methods: of all of them the learning rate and the weight decay."""

from dataclasses import replace

from tune_calib.spec.space import SPACES, Point, Setting, Space, around, bounded, choice

_LR = {"network.lr": around(0.1)}
_WEIGHT_DECAY = {"network.weight_decay": around(5e-4)}
_SMOOTHING = bounded(0.0, 0.3, "from none to six times the usual 0.05")
_MARGIN = bounded(0.0, 20.0, "twice the largest published margin")
_FOCUS = bounded(0.0, 10.0, "from cross entropy to above the largest published exponent, 6.1")
_SHARE = bounded(0.0, 1.0, "the whole range of a share")
# Parameter of the Beta distribution of mixed shares: the values of mixup's authors and others.
_BETA = around(1.0, 0.4, 0.2)


def _register(method: str, settings: dict[str, Setting], *first: Point) -> None:
    SPACES.register(Space(method, {**_LR, **_WEIGHT_DECAY, **settings}, first))


_register("ce", {})
# The authors lower the learning rate to 0.035 where 0.1 diverges.
_register("brier", {}, {"network.lr": 0.035})
_register(
    "ls",
    {"network.alpha": _SMOOTHING},
    # The values of FeDLaS for CIFAR-100 and of BalCAL.
    {"network.alpha": 0.1},
    {"network.alpha": 0.03},
)
_register(
    "mbls",
    {"network.margin": _MARGIN, "network.alpha": around(0.1)},
    # For Tiny-ImageNet: from MbLS's README and from FeDLaS's text.
    {"network.margin": 10.0, "network.alpha": 0.1},
    {"network.margin": 10.0, "network.alpha": 0.05},
)
_register(
    "acls",
    {
        "network.margin": _MARGIN,
        "network.alpha": around(0.1),
        "network.pos_lambda": around(1.0),
        "network.neg_lambda": around(0.1),
        "network.positive_distance": choice("raw_max", "max_minus_min"),
    },
    {"network.margin": 10.0},
)
_register("fl", {"network.gamma": _FOCUS}, {"network.gamma": 1.0})
_register("flsd", {"network.gamma": _FOCUS}, {"network.gamma": 2.0})
_register(
    "dfl",
    {"network.gamma": _FOCUS},
    # Tuned by the authors for other networks and data sets.
    *({"network.gamma": gamma} for gamma in (2.3, 2.6, 3.4, 3.9, 4.5, 6.1)),
)
_register(
    "adafocal",
    {
        "network.lam": around(1.0),
        "network.switch_pt": bounded(0.0, 1.0, "up to the initial exponent"),
        "network.gamma_max": bounded(2.0, 20.0, "the published 20 bounds only runaway exponents"),
        "network.gamma_min": bounded(-5.0, -0.5, "around the published -2, below 0"),
    },
)
_register("ecp", {"network.alpha": around(0.1)})
_register("cpc", {"network.lambda_bdc": around(0.1), "network.lambda_bec": around(1.0)})
_register("mmce", {"network.lam": around(1.0, 2.0)}, {"network.lam": 2.0})
_register(
    "mmce_weighted",
    {"network.lam": around(2.0, 8.0), "network.normalisation": choice("code", "paper")},
    # From the original paper's experiments with text.
    {"network.lam": 8.0},
)
_register(
    "mdca",
    {
        "network.pairing": choice("nll", "fl", "ls_wrong_only"),
        "network.beta": around(1.0),
        "network.gamma": replace(_FOCUS, only_if={"network.pairing": ("fl",)}),
        "network.alpha": replace(_SMOOTHING, only_if={"network.pairing": ("ls_wrong_only",)}),
    },
    {"network.pairing": "fl", "network.gamma": 3.0},
    {"network.pairing": "nll"},
)
_register(
    "crl", {"network.weight": around(1.0), "network.target": choice("softmax", "entropy", "margin")}
)
_register("mixup", {"network.alpha": _BETA}, {"network.alpha": 0.4}, {"network.alpha": 0.2})
for _mit in ("mit_a", "mit_l"):
    _register(
        _mit,
        {
            "network.alpha": _BETA,
            "network.margin": bounded(0.0, 0.8, "at the permitted 0.9 the shares are almost fixed"),
        },
        {"network.alpha": 1.0, "network.margin": 0.0},
    )
_register("plp", {"network.gamma": around(1.0, 0.5)}, {"network.gamma": 0.5})
SPACES.register(
    name="balcal",
    # Its authors use Adam, without weight decay.
    settings={
        "network.lr": around(1e-4, 0.1),
        "network.delta": bounded(0.8, 1.0, "a lower target would ask for under-confidence"),
    },
    first=({"network.delta": 1.0},),
)

_FEDLAS = {
    "network.alpha": _SMOOTHING,
    # The values of both variants.
    "network.beta": around(4.0, 1.0, 0.5),
    "network.theta": _SHARE,
}
# The published values for CIFAR-100 here, and for CIFAR-100 and Tiny-ImageNet below.
_register("fedlas_ls", _FEDLAS, {"network.alpha": 0.1, "network.theta": 0.5})
_register(
    "fedlas_mbls",
    {**_FEDLAS, "network.margin": _MARGIN},
    {"network.beta": 1.0, "network.theta": 0.5},
    {"network.alpha": 0.05, "network.margin": 10.0, "network.theta": 0.5},
)
# The default of TST's program, and the value of its example.
_LATENT = {"network.latent": choice(10, 64, 256)}
_register("tst_joint", _LATENT, {"network.latent": 10})
_register(
    "vtst_joint",
    {**_LATENT, "network.evaluation": choice("mc", "mean"), "network.kl_weight": around(1.0, 0.01)},
    {"network.latent": 10},
    {"network.kl_weight": 0.01},
)
