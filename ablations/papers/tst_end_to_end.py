"""TST (Jordahn and Olmos, arXiv 2405.01196): two stages against the same network end to end."""

from tune_calib.spec.reproduction import (
    CPU,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

_TST = "frozen, fresh MLP (TST)"

REPRODUCTIONS.register(
    Reproduction(
        name="tst/end_to_end",
        title="Two stages against one, of the same heads",
        runs=(Run(ladder="decoupling"),),
        metrics=("accuracy", "ece"),
        claims=(
            Claim("TST has a lower ECE in two stages than end to end", _TST,
                  ("TST head, end to end",)),
            Claim("V-TST has a lower ECE in two stages than end to end", "V-TST",
                  ("V-TST head, end to end",)),
            Claim("Two stages have a lower ECE than one", _TST, ("joint",)),
            Claim("The Gaussian layer lowers the ECE further", "V-TST", (_TST,)),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "focal",
                        {"network": {"epochs": 60, "precision": "bf16"}}, seeds=1, gpus=1.0),
            ),
            "paper": (Setting(("cifar10", "cifar100", "svhn"), ("wrn28_10",), "tst", seeds=10,
                              gpus=1.0),),
        },
        note="What the paper says in words; its numbers are not known here. The other rungs are "
        "controls, which the paper lacks.",
    ),
)  # fmt: skip
