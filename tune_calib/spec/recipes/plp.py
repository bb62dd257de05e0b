"""PLP, and Mixup-Inference-in-Training, whose code base it is: mean loss, no clip, last epoch."""

from tune_calib.spec.recipe import RECIPES, Recipe
from tune_calib.spec.recipes.focal import FOCAL

PLP = RECIPES.register(
    Recipe(
        name="plp",
        title="PLP, MIT and mixup",
        source="Wang and Zhang, ICML 2024; Wang et al., CVPR 2023",
        settings={
            "network": {
                **FOCAL.settings["network"],
                "weight_decay": 1e-4,
                "loss_reduction": "mean",
                "clip_grad_norm": None,
            },
        },
        on={
            "cifar10": {"data": {"split": "plp", "norm": "imagenet"}},
            "cifar100": {"data": {"split": "plp", "norm": "cifar100_crl"}},
            "svhn": {"data": {"split": "plp", "norm": "half"}},
        },
        methods={"plp": {"": {"weight_decay": 5e-4}, "tiny_imagenet": {"weight_decay": 1e-4}}},
        datasets=("cifar10", "cifar100", "svhn"),
    )
)
