"""FeDLaS (ECCV 2026), table 3: foreign images told from the test split, ResNet-50.

The authors' program prints AUROC by the entropy and by the largest probability; which of them the
table has is not said.
"""

from tune_calib.spec.reproduction import (
    CPU,
    FOREIGN_SMOKE,
    REPRODUCTIONS,
    Claim,
    Reproduction,
    Run,
    Setting,
    on_cifar,
)

_METHODS = (
    "ce",
    "temperature",
    "dfl",
    "adafocal",
    "acls",
    "ls",
    "fedlas_ls",
    "mbls",
    "fedlas_mbls",
)
_FOREIGN = {"svhn": "SVHN", "cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}

REPRODUCTIONS.register(
    Reproduction(
        name="fedlas/table3",
        title="FeDLaS: foreign images told from the test split",
        published="fedlas/table3",
        runs=(Run("methods", methods=_METHODS, printed={"temperature": "TS"}),),
        metrics=(*(f"ood/{name}/auroc" for name in _FOREIGN), "ood/noise/auroc"),
        claims=tuple(
            Claim(f"{name} has a higher AUROC than {base} on {told}", method, (under,),
                  f"ood/{foreign}/auroc", run="methods")
            for method, name, under, base in (
                ("fedlas_ls", "FeDLaS-LS", "ls", "LS"),
                ("fedlas_mbls", "FeDLaS-MbLS", "mbls", "MbLS"),
            )
            for foreign, told in _FOREIGN.items()
        ),
        scales={
            "smoke": FOREIGN_SMOKE,
            "cpu": on_cifar(CPU[0], "noise"),
            "paper": on_cifar(Setting((), ("resnet50",), "fedlas", gpus=1.0), "svhn"),
        },
        note="The paper does not say whether its score is the entropy; here it is the largest "
        "probability. Scale cpu has Gaussian noise, which the paper has not, and no SVHN",
    ),
)  # fmt: skip
