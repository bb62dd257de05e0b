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
        runs=(
            Run(
                "losses",
                methods=("ce", *(m for own in _LOSSES.values() for m in (own, f"{own}+mac_cal"))),
                printed={own: row for row, own in _LOSSES.items()}
                | {f"{own}+mac_cal": f"{row}+MaC-Cal" for row, own in _LOSSES.items()},
            ),
        ),
        metrics=("accuracy", "ece"),
        figures=("tradeoff",),
        claims=tuple(
            Claim(f"MaC-Cal lowers the ECE of a network trained with {row}", f"{own}+mac_cal",
                  (own,), run="losses")
            for row, own in _LOSSES.items()
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "paper": (
                Setting(("cifar10", "cifar100", "tiny_imagenet"),
                        ("resnet50", "resnet110", "wrn26_10", "densenet121"), "focal", gpus=1.0),
            ),
        },
        note="The paper prints means over four networks; plain cross entropy stands beside them "
        "here, which tells the regime.",
    ),
)  # fmt: skip
