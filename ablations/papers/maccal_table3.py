"""MaC-Cal (arXiv 2508.09116), table 3: MaC-Cal on networks of other losses, CIFAR averages."""

from tune_calib.registry import REPRODUCTIONS
from tune_calib.reproduction import CPU, SMOKE, Claim, Reproduction, Run, Setting

# As printed, and their names here.
_LOSSES = {
    "ACLS": "acls", "LS": "ls", "MbLS": "mbls", "mixup": "mixup", "MIT": "mit_a", "FL": "fl",
    "FLSD": "flsd", "DFL": "dfl", "CPC": "cpc", "MMCE": "mmce",
}  # fmt: skip

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/table3",
        title="MaC-Cal on networks that were trained with other losses",
        published="maccal/table3",
        runs=(Run(ladder="combinations"),),
        metrics=("accuracy", "ece"),
        figures=("tradeoff",),
        claims=(
            *(
                Claim(f"MaC-Cal lowers the ECE of a network trained with {row}", f"{own}+mac_cal",
                      (own,))
                for row, own in _LOSSES.items()
            ),
            Claim("Not in the paper: on plain networks MaC-Cal has a lower ECE than temperature "
                  "scaling", "ce+mac_cal", ("ce+temperature",)),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "paper": (
                Setting(("cifar10", "cifar100", "tiny_imagenet"),
                        ("resnet50", "resnet110", "wrn26_10", "densenet121"), "focal", gpus=1.0),
            ),
        },
        note="The paper prints means over four networks; plain cross entropy, which tells the "
        "regime, and temperature scaling stand beside its rows here.",
    ),
)  # fmt: skip
