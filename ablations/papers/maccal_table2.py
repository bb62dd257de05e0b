"""MaC-Cal (arXiv 2508.09116), table 2: foreign images told from the test split, CIFAR averages.

The print has means over SVHN and the other CIFAR, and names neither network nor score; the authors'
earlier program (BalCAL) takes the largest probability.
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

_METRICS = ("ood/mean/auroc", "ood/mean/fpr95")

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/table2",
        title="MaC-Cal: foreign images told from the test split",
        published="maccal/table2",
        runs=(Run("methods", methods=("ce", "plp", "tst", "vtst", "balcal", "mac_cal")),),
        metrics=_METRICS,
        claims=tuple(
            Claim(f"MaC-Cal has {better} than {names}", "mac_cal", than, metric, run="methods")
            for metric, better in zip(_METRICS, ("a higher AUROC", "a lower FPR95"), strict=True)
            for names, than in (
                ("the network it stands on", ("ce",)),
                ("TST and V-TST", ("tst", "vtst")),
                ("BalCAL", ("balcal",)),
            )
        ),
        scales={
            "smoke": FOREIGN_SMOKE,
            "cpu": on_cifar(CPU[0], "noise"),
            "paper": on_cifar(Setting((), ("densenet121",), "focal", gpus=1.0), "svhn"),
        },
        note="The paper takes SVHN and the other CIFAR, and says neither which network nor which "
        "score; here it is the largest probability. Where SVHN is not at hand (scale cpu), "
        "Gaussian noise stands in its place: those means are of other images than the print",
    ),
)  # fmt: skip
