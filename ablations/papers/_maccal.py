"""What tables of MaC-Cal (arXiv 2508.09116) have in common."""

from tune_calib.spec.reproduction import Setting

# Losses as printed, and their names here.
LOSSES = {
    "ACLS": "acls", "LS": "ls", "MbLS": "mbls", "mixup": "mixup", "MIT": "mit_a", "FL": "fl",
    "FLSD": "flsd", "DFL": "dfl", "CPC": "cpc", "MMCE": "mmce",
}  # fmt: skip

METHODS = (
    "ce",
    *LOSSES.values(),
    "plp",
    "balcal",
    "tst",
    "vtst",
    "mac_cal",
)
"""Every row of table 1."""

OTHERS = METHODS[:-1]

PAPER = (
    Setting(
        ("cifar10", "cifar100"),
        ("resnet50", "resnet110", "wrn26_10", "densenet121"),
        "focal",
        gpus=1.0,
    ),
    Setting(("tiny_imagenet",), ("resnet50",), "focal", gpus=1.0),
)
"""Every column of table 1."""
