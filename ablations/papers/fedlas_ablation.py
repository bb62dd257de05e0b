"""FeDLaS (ECCV 2026): base loss, norm-based confidence, learned gate, one at a time."""

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
        name="fedlas/ablation",
        title="FeDLaS, one ingredient at a time",
        published="fedlas/table1",
        runs=(
            Run(
                ladder="fedlas",
                controls=True,
                printed={
                    "LS": "LS",
                    "LS + NCI + BCG": "FeDLaS-LS",
                    "MbLS": "MbLS",
                    "MbLS + NCI + BCG": "FeDLaS-MbLS",
                },
            ),
        ),
        metrics=("accuracy", "ece", "aece"),
        claims=(
            *(
                Claim(f"The full method has a lower ECE than {base}", f"{base} + NCI + BCG",
                      (base,))
                for base in ("LS", "MbLS")
            ),
            *(
                Claim(f"The learned gate lowers the ECE on {base}", f"{base} + NCI + BCG",
                      (f"{base} + NCI",))
                for base in ("LS", "MbLS")
            ),
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
        note="First and last rows stand beside table 1. The numbers between are not known here: "
        "that the gate adds to the norm is what it is for.",
    ),
)  # fmt: skip
