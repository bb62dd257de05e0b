"""confidence-aware-learning (CRL): drops at 150 and 250 of 300 epochs, the last one kept."""

from tune_calib.recipe import Recipe
from tune_calib.recipes.plp import PLP
from tune_calib.registry import RECIPES

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
        datasets=("cifar10", "cifar100", "svhn"),
        note="It trains on all images and has no validation split; here one is held out. Its "
        "ResNet-110 of 1.7 million weights is not among the backbones: the default is the "
        "ResNet-56 of that family.",
    )
)
