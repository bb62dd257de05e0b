"""focal_calibration (Mukhoti et al., NeurIPS 2020), the code base that MaC-Cal names.

The loss is summed over the batch and its gradient clipped behind that, so that the clip is at work
most of the time (docs/pages/methods/index.md#summed-loss); the last epoch is kept.
"""

from tune_calib.spec.recipe import GENERAL, RECIPES, Recipe

FOCAL = RECIPES.register(
    Recipe(
        name="focal",
        title="focal_calibration, and MaC-Cal's stage I",
        source="Mukhoti et al., NeurIPS 2020",
        url="https://github.com/torrvision/focal_calibration",
        settings={
            "network": {
                "backbone": "resnet50",
                "epochs": 350,
                "batch_size": 128,
                "optimizer": "sgd",
                "lr": 0.1,
                "momentum": 0.9,
                "weight_decay": 5e-4,
                "milestones": (3 / 7, 5 / 7),
                "lr_decay": 0.1,
                "loss_reduction": "sum",
                "clip_grad_norm": 2.0,
                "augment": "standard",
                "drop_last": False,
                "select": "last",
            },
            # Stage II of MaC-Cal: "40 epochs at 0.1 LR", constant, in the same code base.
            "head": {
                "epochs": 40,
                "batch_size": 128,
                "optimizer": "sgd",
                "lr": 0.1,
                "momentum": 0.9,
                "weight_decay": 5e-4,
                "loss_reduction": "sum",
                "clip_grad_norm": 2.0,
                "augment": "standard",
                "select": "last",
            },
        },
        on={
            "tiny_imagenet": {
                "network": {"epochs": 100, "batch_size": 64, "milestones": (0.4, 0.6)}
            },
        },
        # Its Brier score is divided by N inside, and so is never summed; its scripts train it
        # longer on two networks.
        methods={
            "brier": {
                "": {"loss_reduction": "mean"},
                "cifar10/wrn26_10": {"epochs": 550},
                "cifar100/resnet110": {"epochs": 430},
                "tiny_imagenet": {"lr": 0.035},
            },
        },
        datasets=("cifar10", "cifar100", "tiny_imagenet", *GENERAL),
        backbones=("resnet50", "resnet110", "wrn26_10", "densenet121"),
        note="MaC-Cal's text gives batches of 128 for Tiny-ImageNet too; the code base takes 64. "
        "`views` of heads stays at its default; as many as epochs are the published fresh "
        "augmentation.",
    )
)
