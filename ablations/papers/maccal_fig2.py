"""MaC-Cal (arXiv 2508.09116), figure 2: how far apart the classes lie, before and after.

We have the figure's subject alone, and so it claims nothing here. It is drawn of logits, so that
heads of any shape compare.
"""

from tune_calib.spec.reproduction import CPU_HEADS, REPRODUCTIONS, SMOKE, Reproduction, Run, Setting

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/fig2",
        title="MaC-Cal: class prototypes",
        runs=(Run("methods", methods=("ce", "ce+retrain", "ce+mac_cal"), logits=True),),
        metrics=("accuracy", "ece", "angles_sd"),
        claims=(),
        scales={
            "smoke": SMOKE,
            "cpu": CPU_HEADS,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "focal",
                        {"network": {"epochs": 60, "precision": "bf16"}}, gpus=1.0),
            ),
            "paper": (Setting(("cifar10", "cifar100"), ("densenet121",), "focal", gpus=1.0),),
        },
        note="Of logits instead of features; of one trial of each rung, that of the smallest seeds",
        figures=("prototypes", "reliability"),
    ),
)  # fmt: skip
