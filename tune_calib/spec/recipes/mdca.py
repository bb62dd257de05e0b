"""MDCA: drops at a half and three quarters, no clip, the epoch of best validation accuracy."""

from tune_calib.spec.recipe import RECIPES, Recipe
from tune_calib.spec.recipes.plp import PLP

RECIPES.register(
    Recipe(
        name="mdca",
        title="MDCA",
        source="Hebbalaguppe et al., CVPR 2022",
        url="https://github.com/mdca-loss/MDCA-Calibration",
        settings={
            "network": {
                **PLP.settings["network"],
                "backbone": "resnet56",
                "epochs": 160,
                "weight_decay": 5e-4,
                "milestones": (0.5, 0.75),
                "select": "best_val_acc",
            },
        },
        on={
            "cifar10": {"data": {"split": "mdca"}, "network": {"drop_last": True}},
            "cifar100": {"data": {"split": "mdca"}, "network": {"epochs": 200}},
        },
        datasets=("cifar10", "cifar100"),
        backbones=("resnet20", "resnet32", "resnet56"),
    )
)
