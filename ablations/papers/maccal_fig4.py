"""MaC-Cal (arXiv 2508.09116), figure 4: average ECE, over- and under-confident parts apart."""

from ablations.papers._maccal import METHODS, OTHERS, PAPER
from tune_calib.spec.reproduction import CPU, REPRODUCTIONS, SMOKE, Claim, Reproduction, Run

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/fig4",
        title="ECE in an over- and an under-confident part",
        published="maccal/table1",
        runs=(Run("methods", methods=METHODS),),
        metrics=("ece", "o_ece", "u_ece"),
        claims=(
            Claim("MaC-Cal has the lowest ECE of all methods", "mac_cal", OTHERS, run="methods"),
        ),
        scales={"smoke": SMOKE, "cpu": CPU, "paper": PAPER},
        note="The trials are those of table 1, whose ECE stands beside; the parts are not printed. "
        "The claim is judged on each data set and network by itself; `tune-calib averages` over "
        "the folders of the results draws the averages as the figure has them.",
    ),
)  # fmt: skip
