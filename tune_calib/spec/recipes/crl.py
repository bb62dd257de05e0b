"""confidence-aware-learning (CRL): drops at 150 and 250 of 300 epochs, the last one kept."""

from tune_calib.spec.recipe import RECIPES, Recipe
from tune_calib.spec.recipes.plp import PLP

RECIPES.register(
    Recipe(
        name="crl",
        title="correctness ranking loss",
        source="Moon et al., ICML 2020",
        url="https://github.com/daintlab/confidence-aware-learning",
        settings={
            "network": {
                **PLP.settings["network"],
                "backbone": "resnet56",
                "epochs": 300,
                "milestones": (0.5, 5 / 6),
            },
        },
        on={
            "cifar10": {"data": {"split": "whole", "norm": "cifar10_crl"}},
            "cifar100": {"data": {"split": "whole", "norm": "cifar100_crl"}},
            # Read in PLP's code base, which grew out of it.
            "svhn": {"data": {"split": "whole", "norm": "half"}},
        },
        datasets=("cifar10", "cifar100", "svhn"),
        note="It trains on all images and has no validation split: `select` and `calib` are cut "
        "from the test part, and the rest is tested. Its "
        "ResNet-110 of 1.7 million weights is not among the backbones: the default is the "
        "ResNet-56 of that family.",
    )
)
