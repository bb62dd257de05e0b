"""FeDLaS on CUB and Aircraft: a vision transformer, trained on from its ImageNet weights."""

from typing import Any

from tune_calib.spec.recipe import RECIPES, Recipe

# What MbLS and FeDLaS, one code base, share on images of many sizes.
FINE_GRAINED: dict[str, Any] = {
    "epochs": 200,
    "lr_decay": 0.1,
    "weight_decay": 5e-4,
    "loss_reduction": "mean",
    "clip_grad_norm": 2.0,
    "augment": "standard",
    "drop_last": True,
    "select": "best_val_acc",
}

RECIPES.register(
    Recipe(
        name="vit",
        title="FeDLaS on CUB and Aircraft",
        source="FeDLaS, ECCV 2026",
        url="https://github.com/nadarasarbahavan/FEDLAS",
        settings={
            "network": {
                **FINE_GRAINED,
                "backbone": "vit_base_patch16_384",
                "batch_size": 16,
                "optimizer": "adamw",
                "lr": 1e-4,
                "milestones": (0.4, 0.8),
            },
        },
        # On Aircraft the data set's own.
        on={"cub": {"data": {"resize": 448, "crop": 384}}},
        methods={"mbls": {place: {"alpha": 0.05} for place in ("cub", "aircraft")}},
        datasets=("cub", "aircraft"),
        backbones=("vit_base_patch16_384",),
        pretrained=True,
        note="Its weights are timm's `vit_base_patch16_384.augreg_in21k_ft_in1k`: give them as "
        "[`network.weights`](data.md#weights). Pixels are normalised by ImageNet's constants, as "
        "in its program; the weights were trained with `data.norm` = `half`. Its program trains on "
        "all training images and chooses the epoch on the test images; here it is chosen on a "
        "tenth that is held out of train (`data.split` = `val_is_test` is as published). Its "
        "configuration files have a momentum `theta` of .001, its text that of Tiny-ImageNet, .5, "
        "which is taken.",
    )
)
