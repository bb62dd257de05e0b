"""FeDLaS (ECCV 2026): which gate it needs."""

from tune_calib.spec.reproduction import (
    CPU,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

REPRODUCTIONS.register(
    Reproduction(
        name="fedlas/gate",
        title="FeDLaS-LS: the gate",
        runs=(Run(ladder="fedlas_gate", controls=True),),
        metrics=("accuracy", "ece", "aece"),
        figures=("samples", "tradeoff"),
        claims=(
            Claim("The learned gate has a lower ECE than a fixed one", "learned",
                  ("always +", "always -")),
            Claim("The learned gate has a lower ECE than a coin", "learned", ("random",)),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "fedlas",
                        {"network": {"epochs": 60, "precision": "bf16"}}, gpus=1.0),
            ),
            "paper": (Setting(("cifar10", "cifar100"), ("resnet50",), "fedlas", gpus=1.0),),
        },
        note="The paper's numbers are not known here: the claims are what the learned gate is for.",
    ),
)  # fmt: skip
