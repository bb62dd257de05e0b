"""The optimiser recipes of the authors' code bases, taken where each method's own is asked for.

Epochs, backbone and augmentation are those of a comparison whoever's recipe it takes: milestones
are shares of the epochs (150 and 250 of 350; 40 and 60 of 100 on Tiny-ImageNet).
"""

from typing import Any

Recipe = dict[str, Any]
ByDataset = dict[str, Recipe]

_SGD: Recipe = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
_STEPS: Recipe = {"milestones": (3 / 7, 5 / 7), "lr_decay": 0.1, "drop_last": False}
_ADAM: Recipe = {"optimizer": "adam", "lr": 1e-4, "weight_decay": 0.0}

# Sum or mean is no matter of taste here: the clip acts behind it, and a gradient summed over a
# batch lies above its limit most of the time.
FOCAL_HEAD: Recipe = {
    **_SGD,
    "batch_size": 128,
    "loss_reduction": "sum",
    "clip_grad_norm": 2.0,
    "select": "last",
}
"""Stage II of MaC-Cal, whose text names the code base of ``FOCAL``; constant learning rate."""

FOCAL: Recipe = {**FOCAL_HEAD, **_STEPS}
"""focal_calibration (Mukhoti et al., NeurIPS 2020): the summed loss is clipped, so that the clip
is at work most of the time."""

FOCAL_ON: ByDataset = {"tiny_imagenet": {"batch_size": 64, "milestones": (0.4, 0.6)}}

MARGIN: Recipe = {**FOCAL, "loss_reduction": "mean", "select": "best_val_acc"}
"""MbLS, and what grew out of it: CALS, ACLS, FeDLaS."""

# That code base leaves the incomplete batch out on CIFAR-10 alone, not on CIFAR-100.
MARGIN_ON: ByDataset = {**FOCAL_ON, "cifar10": {"drop_last": True}}

MIXED: Recipe = {
    **FOCAL,
    "loss_reduction": "mean",
    "weight_decay": 1e-4,
    "clip_grad_norm": None,
}
"""mixup and MIT; PLP with another weight decay."""

TWO_STAGE_HEAD: Recipe = {
    **_ADAM,
    "batch_size": 256,
    "loss_reduction": "mean",
    "clip_grad_norm": None,
    "select": "min_val_nll",
}
"""TST and V-TST (Jordahn and Olmos, ICML 2024)."""

TWO_STAGE: Recipe = {**TWO_STAGE_HEAD, "milestones": (), "drop_last": False}
"""BalCAL, in the code base of TST."""
