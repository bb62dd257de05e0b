"""MaC-Cal (arXiv 2508.09116), table 4: seconds of training.

Seconds of two machines do not compare: what can be held against the print is the ratio to plain
training. The claims are of what all nine printed columns have.
"""

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
        name="maccal/table4",
        title="What training costs",
        published="maccal/table4",
        runs=(Run(ladder="cost"),),
        metrics=("cost_ratio", "total_s", "network_s", "bank_s", "own_s", "memory_mib"),
        claims=(
            Claim("MaC-Cal adds less than a tenth to plain training", "mac_cal", (),
                  "cost_ratio", kind="sign", number=1.1),
            Claim("MIT takes more than one and a half times as long as plain training", "mit_a", (),
                  "cost_ratio", kind="sign", is_rise=True, number=1.5),
            Claim("MaC-Cal takes less time than MIT and BalCAL", "mac_cal", ("mit_a", "balcal"),
                  "cost_ratio", kind="sign"),
            Claim("MaC-Cal and V-TST take the same time, within a hundredth of plain training",
                  "mac_cal", ("vtst",), "cost_ratio", kind="close", least=0.01),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "gpu": (
                Setting(("cifar100",), ("resnet18",), "focal",
                        {"network": {"epochs": 60, "precision": "bf16"}}, gpus=1.0),
            ),
            "paper": (
                Setting(("cifar10", "cifar100"),
                        ("resnet50", "resnet110", "wrn26_10", "densenet121"), "focal", gpus=1.0),
                Setting(("tiny_imagenet",), ("resnet50",), "focal", gpus=1.0),
            ),
        },
        note="Times compare where one idle machine took them all; seconds of a network out of the "
        "store are of whoever trained it. A head has its share of those that were trained "
        "together, and the network and the bank beneath it in full",
        figures=("cost",),
    ),
)  # fmt: skip
