"""MaC-Cal (arXiv 2508.09116), table 3: MaC-Cal on networks of other losses, CIFAR averages."""

from ablations.papers._maccal import LOSSES, PAPER
from tune_calib.registry import REPRODUCTIONS
from tune_calib.reproduction import CPU, SMOKE, Claim, Reproduction, Run

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/table3",
        title="MaC-Cal on networks that were trained with other losses",
        published="maccal/table3",
        runs=(
            Run(
                "losses",
                methods=("ce", *(m for own in LOSSES.values() for m in (own, f"{own}+mac_cal"))),
                printed={own: row for row, own in LOSSES.items()}
                | {f"{own}+mac_cal": f"{row}+MaC-Cal" for row, own in LOSSES.items()},
            ),
        ),
        metrics=("accuracy", "ece"),
        claims=tuple(
            Claim(f"MaC-Cal lowers the ECE of a network trained with {row}", f"{own}+mac_cal",
                  (own,), run="losses")
            for row, own in LOSSES.items()
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "paper": PAPER,
        },
        note="The paper prints means over four networks; plain cross entropy stands beside them "
        "here, which tells the regime.",
    ),
)  # fmt: skip
