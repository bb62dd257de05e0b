"""MaC-Cal (arXiv 2508.09116), table 5: one ingredient at a time, DenseNet-121 on CIFAR."""

from itertools import pairwise

from tune_calib.spec.reproduction import (
    CPU_HEADS,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

_FULL = "+ decaying adaptive sparsity"
_STEPS = (
    "vanilla",
    "+ masked retraining",
    "+ gradient restriction",
    "+ classifier restructure",
    "+ static adaptive sparsity",
    _FULL,
)

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/table5",
        title="MaC-Cal, one ingredient at a time",
        published="maccal/table5",
        runs=(Run(ladder="mac_cal", controls=True),),
        metrics=("accuracy", "ece", "aece", "mce"),
        figures=("reliability", "tradeoff", "sparsity"),
        claims=(
            Claim("The full method has a lower ECE than the network it stands on", _FULL,
                  ("vanilla",)),
            Claim("The full method has the lowest ECE of all steps", _FULL, _STEPS[:-1]),
            *(
                Claim(f"{step[2:].capitalize()} lowers the ECE", step, (before,))
                for before, step in pairwise(_STEPS)
            ),
            Claim("The full method is at least as accurate as the network less half a point", _FULL,
                  ("vanilla",), "accuracy", kind="size", least=-0.005),
            Claim("The ECE falls by a point or more", _FULL, ("vanilla",), kind="size", least=0.01),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU_HEADS,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "focal",
                        {"network": {"epochs": 60, "precision": "bf16"}}, gpus=1.0),
            ),
            "paper": (Setting(("cifar10", "cifar100"), ("densenet121",), "focal", gpus=1.0),),
        },
    ),
)  # fmt: skip
