"""FeDLaS (ECCV 2026), figure 3: over- and under-confident samples, and how often gates flip.

We have the figure's subject alone, and so it claims nothing here.
"""

from tune_calib.spec.reproduction import CPU, REPRODUCTIONS, SMOKE, Reproduction, Run, Setting

REPRODUCTIONS.register(
    Reproduction(
        name="fedlas/fig3",
        title="FeDLaS: over- and under-confident samples over the epochs",
        # Plain cross entropy tells the regime; it keeps no records of single samples.
        runs=(Run("methods", methods=("ce", "fedlas_ls", "fedlas_mbls")),),
        metrics=("over_first", "over_last", "under_last", "flipped_first", "flipped_last", "ece"),
        claims=(),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "fedlas",
                        {"network": {"epochs": 60, "precision": "bf16"}}, gpus=1.0),
            ),
            "paper": (Setting(("cifar10", "cifar100"), ("resnet50",), "fedlas", gpus=1.0),),
        },
        note="Gates on train as the loss saw each sample; the first epoch that has flips is the "
        "second",
        figures=("samples",),
    ),
)  # fmt: skip
