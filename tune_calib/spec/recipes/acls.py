"""MbLS and what grew out of its code base: CALS, ACLS.

As ``focal`` with the mean loss, and the epoch of best validation accuracy. Its CIFAR-10 loader
leaves the incomplete last batch out, its CIFAR-100 loader does not.
"""

from tune_calib.spec.recipe import RECIPES, Recipe
from tune_calib.spec.recipes.focal import FOCAL

ACLS = RECIPES.register(
    Recipe(
        name="acls",
        title="MbLS, CALS and ACLS",
        source="Park et al., ICCV 2023",
        url="https://github.com/cvlab-yonsei/ACLS",
        settings={
            "network": {
                **FOCAL.settings["network"],
                "loss_reduction": "mean",
                "select": "best_val_acc",
            },
        },
        on={**FOCAL.on, "cifar10": {"network": {"drop_last": True}}},
        datasets=FOCAL.datasets,
        backbones=("resnet50", "resnet101"),
    )
)
