"""A small network of the papers' kind that fits CIFAR within an hour of one processor core."""

from tune_calib.spec.recipe import GENERAL, RECIPES, Recipe

RECIPES.register(
    Recipe(
        name="fast",
        title="a small network trained by one cycle",
        source="settings of fast-CIFAR programs",
        settings={
            "network": {
                "backbone": "fast_cnn",
                "epochs": 14,
                "batch_size": 256,
                "lr": 0.4,
                "nesterov": True,
                "weight_decay": 5e-4,
                "schedule": "one_cycle",
                "warmup": 0.2,
                "augment_until": 5 / 7,
            },
            "head": {"epochs": 20, "batch_size": 128},
        },
        datasets=("cifar10", "cifar100", *GENERAL),
        backbones=("fast_cnn",),
        note="XXX",
    )
)
