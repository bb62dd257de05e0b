"""FeDLaS (ECCV 2026): which indicator of confidence it needs."""

from tune_calib.spec.reproduction import (
    CPU,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

_OWN = "feature norm L1 (NCI)"

REPRODUCTIONS.register(
    Reproduction(
        name="fedlas/indicator",
        title="FeDLaS-LS: the indicator of confidence",
        runs=(Run(ladder="fedlas_indicator", controls=True),),
        metrics=("accuracy", "ece", "aece"),
        figures=("samples", "tradeoff"),
        claims=(
            Claim("The L1 norm of features has a lower ECE than the maximum softmax and logit",
                  _OWN, ("maximum softmax", "maximum logit")),
            Claim("The norm tells something: the gate alone, or chance, has a higher ECE", _OWN,
                  ("constant", "random")),
            Claim("The running normalisation lowers the ECE", _OWN, (f"{_OWN}, raw",)),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "fedlas",
                        {"network": {"epochs": 30, "precision": "bf16"}}, seeds=1, gpus=1.0),
            ),
            "paper": (Setting(("cifar10", "cifar100"), ("resnet50",), "fedlas", gpus=1.0),),
        },
        note="The paper's numbers are not known here: the claims are what the norm and its running "
        "normalisation are for. L2 and L∞ stand beside and nothing is claimed of them.",
    ),
)  # fmt: skip
