"""MaC-Cal (arXiv 2508.09116), table 3: MaC-Cal on networks of other losses, CIFAR averages."""

from ablations.papers._maccal import LOSSES, PAPER
from tune_calib.spec.reproduction import CPU, REPRODUCTIONS, SMOKE, Claim, Reproduction, Run

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
                for row, own in LOSSES.items()
            ),
            Claim("Not in the paper: on plain networks MaC-Cal has a lower ECE than temperature "
                  "scaling", "ce+mac_cal", ("ce+temperature",)),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": CPU,
            "paper": PAPER,
        },
        note="The paper prints means over four networks; plain cross entropy, which tells the "
        "regime, and temperature scaling stand beside its rows here.",
    ),
)  # fmt: skip
