"""TST, V-TST and BalCAL: Adam at a small constant rate, the epoch of least validation loss."""

from tune_calib.spec.recipe import RECIPES, Recipe

_ADAM = {
    "optimizer": "adam",
    "lr": 1e-4,
    "weight_decay": 0.0,
    "batch_size": 256,
    "loss_reduction": "mean",
    "clip_grad_norm": None,
    "augment": "standard",
    "select": "min_val_nll",
}

RECIPES.register(
    Recipe(
        name="tst",
        title="TST, V-TST and BalCAL",
        source="Jordahn and Olmos, ICML 2024",
        url="https://arxiv.org/abs/2405.01196",
        settings={
            "network": {
                "backbone": "wrn28_10",
                "epochs": 600,
                **_ADAM,
                "milestones": (),
                "drop_last": False,
            },
            "head": {"epochs": 40, **_ADAM},
        },
        on={
            "cifar10": {"data": {"split": "tst", "norm": "cifar10_tst"}},
            "cifar100": {"data": {"split": "tst", "norm": "cifar100_tst"}},
            # Its constants there are those of the data set's record.
            "svhn": {"data": {"split": "tst"}},
        },
        datasets=("cifar10", "cifar100", "svhn"),
        backbones=("wrn28_10",),
        note="Its loaders keep one order and augment the validation images "
        "([shuffling](methods/index.md#shuffling)); these do neither.",
    )
)
