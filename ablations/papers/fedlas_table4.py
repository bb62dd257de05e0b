"""FeDLaS (ECCV 2026), table 4: over- and under-confidence apart, ResNet-50."""

from tune_calib.spec.reproduction import (
    CPU,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

_METHODS = ("ce", "ls", "fedlas_ls", "mbls", "fedlas_mbls")

REPRODUCTIONS.register(
    Reproduction(
        name="fedlas/table4",
        title="FeDLaS: over- and under-confidence apart",
        published="fedlas/table4",
        runs=(Run("methods", methods=_METHODS),),
        metrics=("o_ece", "u_ece"),
        figures=("confidence", "reliability"),
        claims=tuple(
            Claim(f"{name} has a lower {side} than {base}", method, (under,), metric, run="methods")
            for method, name, under, base in (
                ("fedlas_ls", "FeDLaS-LS", "ls", "LS"),
                ("fedlas_mbls", "FeDLaS-MbLS", "mbls", "MbLS"),
            )
            for metric, side in (("o_ece", "O-ECE"), ("u_ece", "U-ECE"))
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "fedlas",
                        {"network": {"epochs": 60, "precision": "bf16"}}, gpus=1.0),
            ),
            "paper": (
                Setting(("cifar10", "cifar100", "tiny_imagenet"), ("resnet50",), "fedlas",
                        gpus=1.0),
            ),
        },
    ),
)  # fmt: skip
