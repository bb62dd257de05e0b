"""MaC-Cal (arXiv 2508.09116), figure 5: ECE against the severity of corruptions.

Its numbers are not printed, so that nothing stands beside ours, and the claims are what the figure
is drawn for: the method stays below the network it stands on as corruptions grow.
"""

from dataclasses import replace

from tune_calib.spec.reproduction import (
    CPU,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

_SEVERITIES = tuple(f"generated/mean/{severity}/ece" for severity in range(1, 6))
_SHIFT = ("generated",)

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/fig5",
        title="MaC-Cal under corruptions",
        runs=(Run("methods", methods=("ce", "temperature", "tst", "mac_cal")),),
        metrics=("ece", *_SEVERITIES, "generated/mean/ece"),
        claims=(
            Claim("MaC-Cal has a lower ECE under corruptions than the network it stands on",
                  "mac_cal", ("ce",), "generated/mean/ece", run="methods"),
            *(
                Claim(f"So it has at severity {severity}", "mac_cal", ("ce",), metric,
                      run="methods")
                for severity, metric in enumerate(_SEVERITIES, start=1)
            ),
        ),
        scales={
            "smoke": tuple(replace(own, shift=_SHIFT) for own in SMOKE),
            # Draws of 70 sets: two hundred tell their spread to a twentieth.
            "cpu": tuple(replace(own, shift=_SHIFT, bootstrap=200) for own in CPU),
            "paper": (
                Setting(("cifar10", "cifar100"), ("densenet121",), "focal", gpus=1.0,
                        shift=_SHIFT, bootstrap=200),
            ),
        },
        note="Corruptions are generated here, in 14 kinds: they are not CIFAR-10-C, and what the "
        "figure's numbers are is not known; means over kinds. Scale cpu leaves the published "
        "networks out, to save time",
    ),
)  # fmt: skip
