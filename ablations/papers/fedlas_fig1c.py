"""FeDLaS (ECCV 2026), figure 1c: the norm of features against the softmax confidence."""

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
        name="fedlas/fig1c",
        title="FeDLaS: feature norm against confidence",
        # Plain cross entropy tells the regime; it keeps no records of single samples.
        runs=(Run("methods", methods=("ce", "fedlas_ls")),),
        metrics=("confidence_pearson_last", "confidence_spearman_last", "pearson_last", "ece"),
        claims=(
            Claim("The feature norm rises with the softmax confidence", "fedlas_ls", (),
                  "confidence_spearman_last", kind="sign", is_rise=True, run="methods"),
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
        note="Samples of select after the last epoch, of networks trained with FeDLaS-LS",
        figures=("norm_confidence",),
    ),
)  # fmt: skip
