"""MbLS on CUB, and FeDLaS on Aircraft: a ResNet-101, trained on from its ImageNet weights."""

from tune_calib.spec.recipe import RECIPES, Recipe
from tune_calib.spec.recipes.vit import FINE_GRAINED

MBLS_CUB = RECIPES.register(
    Recipe(
        name="mbls_cub",
        title="MbLS on CUB",
        source="Liu et al., CVPR 2022",
        url="https://github.com/by-liu/MbLS",
        settings={
            "network": {
                **FINE_GRAINED,
                "backbone": "resnet101",
                "batch_size": 32,
                "optimizer": "sgd",
                "lr": 0.1,
                "momentum": 0.9,
                "milestones": (0.75,),
            },
        },
        # On CUB the data set's own.
        on={"aircraft": {"data": {"resize": 256, "crop": 224}}},
        datasets=("cub", "aircraft"),
        backbones=("resnet101",),
        pretrained=True,
        note="Image sizes and batch are of its configuration file for CUB. Rate, epochs and drops "
        "are not published: they are its program's defaults, of whose drops at 150 and 250 only "
        "the first lies within its 200 epochs. Weights of ImageNet are torchvision's or timm's, "
        "as [`network.weights`](data.md#weights). The dropout of one half before its last layer is "
        "left out. Its program trains on all training images and chooses the epoch on the test "
        "images; here it is chosen on a tenth that is held out of train (`data.split` = "
        "`val_is_test` is as published). FeDLaS reports this network on CUB and Aircraft with "
        "another weight of MbLS's penalty: recipe `fedlas_cub`.",
    )
)
