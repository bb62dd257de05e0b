"""Head methods with equal spaces: the same optimiser, epochs and stopping, then their own settings.

The spaces of the package have narrower rates, no weight decay for TST and V-TST, and the epochs of
the recipe. ``compare NAME... --tune 32 --plugin docs/examples/equal_spaces.py`` uses these.
"""

from dataclasses import replace

from tune_calib.spec.methods import METHODS
from tune_calib.spec.space import SPACES, choice, log_uniform, uniform

SHARED = {
    "head.lr": log_uniform(1e-5, 0.3),
    "head.weight_decay": log_uniform(1e-6, 0.05),
    "head.batch_size": choice(64, 128, 256),
    "head.epochs": choice(1, 2, 5, 10, 20),
    "head.select": choice("last", "min_val_nll"),
    "head.loss_reduction": choice("mean", "sum"),
    "head.clip_grad_norm": choice(2.0, head__loss_reduction=("sum",)),
}
LAYERS = {
    "head.shape": choice("linear", "bottleneck"),
    "head.width": choice(64, 128, 256, head__shape=("bottleneck",)),
}
OWN = {
    "retrain": LAYERS,
    "tst": {"head.latent": choice(64, 128, 256)},
    "vtst": {
        "head.latent": choice(64, 128, 256),
        "head.evaluation": choice("mc", "mean"),
        "head.kl_weight": log_uniform(0.003, 1.0),
    },
    "mac_cal": {
        **LAYERS,
        "head.q0": uniform(0.3, 0.95),
        "head.gamma": choice("val_ratio", 0.75, 0.85, 0.95, 1.0),
        "head.tau0": uniform(0.0, 0.2),
        "head.masked_update": choice("grad_only", "freeze"),
    },
}
for method, settings in OWN.items():
    name = f"{method}_equal"
    METHODS.register(replace(METHODS[method], name=name, title=f"{method}, equal space"))
    SPACES.register(name=name, settings={**SHARED, **settings})
