"""MaC-Cal (arXiv 2508.09116), figure 8: sparsity and its largest step tau over stage II."""

from tune_calib.spec.reproduction import (
    CPU_HEADS,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

_STATIC, _FULL = "+ static adaptive sparsity", "+ decaying adaptive sparsity"

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/fig8",
        title="MaC-Cal: sparsity and tau over the epochs",
        # Table 5 has the same trials, so that they cost nothing beside it.
        runs=(Run(ladder="mac_cal", controls=True),),
        metrics=("q_first", "q_last", "q_change", "tau_first", "tau_last", "ece"),
        claims=(
            Claim("The largest step tau decays", _FULL, (), "tau_change", kind="sign"),
            Claim("Without decay tau stays what it is", _STATIC, (), "tau_change", kind="close",
                  least=1e-6),
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
        note="The claims are of the schedule alone; where the sparsity settles is seen in the "
        "figure and in its columns",
        figures=("sparsity",),
    ),
)  # fmt: skip
