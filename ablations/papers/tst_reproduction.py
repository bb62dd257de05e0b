"""TST (arXiv 2405.01196) as it was reproduced (Khodaverdian et al., TMLR 2025)."""

from tune_calib.spec.reproduction import (
    CPU_HEADS,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

REPRODUCTIONS.register(
    Reproduction(
        name="tst/reproduction",
        title="Two-stage training beside temperature scaling",
        published="tst/reproduction",
        runs=(Run(ladder="two_stage"),),
        metrics=("accuracy", "ece"),
        claims=(
            Claim("TST lowers the ECE", "TST", ("base",)),
            Claim("V-TST lowers the ECE", "V-TST", ("base",)),
            Claim("The same linear layer, initialised again and retrained, lowers the ECE",
                  "fresh linear", ("base",)),
            Claim("TST has a lower ECE than temperature scaling", "TST", ("temperature",)),
            Claim("V-TST has a lower ECE than TST", "V-TST", ("TST",)),
            Claim("TST is at least as accurate as the network less half a point", "TST", ("base",),
                  "accuracy", kind="size", least=-0.005),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU_HEADS,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "focal",
                        {"network": {"epochs": 60, "precision": "bf16"}}, gpus=1.0),
            ),
            "paper": (Setting(("cifar10", "cifar100"), ("wrn28_10",), "tst", gpus=1.0),),
        },
        note="The print is of the reproduction, of which these numbers alone are known here. The "
        "authors' temperature scaling does not converge; ours does. That accuracy is kept is what "
        "the paper says; half a point is how much that is here.",
    ),
)  # fmt: skip
