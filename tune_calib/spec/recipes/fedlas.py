"""FeDLaS on CIFAR and Tiny-ImageNet: the code base of ACLS, with a weaker MbLS on the latter."""

from dataclasses import replace

from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.recipes.acls import ACLS

RECIPES.register(
    replace(
        ACLS,
        name="fedlas",
        title="FeDLaS on CIFAR and Tiny-ImageNet",
        source="FeDLaS, ECCV 2026",
        url="https://github.com/nadarasarbahavan/FEDLAS",
        # MbLS's README has .1; FeDLaS's text has .05 for Tiny-ImageNet, CUB and Aircraft.
        methods={"mbls": {"tiny_imagenet": {"alpha": 0.05}}},
        note="One file of its settings has 10 epochs for Tiny-ImageNet, beside drops at 40 and "
        "60; read as 100. Its validation images change with the seed of the run; here they do "
        "not.",
    )
)
