"""MaC-Cal (arXiv 2508.09116), table 1: ECE of every method on every network."""

from ablations.papers._maccal import METHODS, OTHERS, PAPER
from tune_calib.spec.reproduction import CPU, REPRODUCTIONS, SMOKE, Claim, Reproduction, Run

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/table1",
        title="Methods side by side",
        published="maccal/table1",
        runs=(Run("methods", methods=METHODS),),
        metrics=("accuracy", "ece"),
        claims=(
            Claim("MaC-Cal has the lowest ECE of all methods", "mac_cal", OTHERS, run="methods"),
            Claim("MaC-Cal has a lower ECE than the other two-stage methods", "mac_cal",
                  ("tst", "vtst"), run="methods"),
            Claim("MaC-Cal's ECE is two points below the network's or more", "mac_cal", ("ce",),
                  kind="size", least=0.02, run="methods"),
        ),
        scales={"smoke": SMOKE, "cpu": CPU, "paper": PAPER},
        note="Every row of the print; all methods by one recipe. Networks of the losses are those "
        "of table 3. The claims hold of every printed column.",
    ),
)  # fmt: skip
