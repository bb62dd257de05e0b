"""MaC-Cal (arXiv 2508.09116), figure 1: masks at inference alone, on a network as it is."""

from tune_calib.spec.reproduction import (
    CPU_HEADS,
    REPRODUCTIONS,
    SMOKE,
    Claim,
    Reproduction,
    Run,
    Setting,
)

_AVERAGED = tuple(f"at inference, q {q}, mc" for q in (0.9, 0.7, 0.5, 0.3))

REPRODUCTIONS.register(
    Reproduction(
        name="maccal/fig1",
        title="Masks at inference alone",
        runs=(Run(ladder="mac_cal_inference"),),
        metrics=("accuracy", "ece", "confidence_gap"),
        claims=(
            Claim("Averaged over masks, the network is less sure for what it is right in, whatever "
                  "is kept", "vanilla", _AVERAGED, "confidence_gap", kind="sign", is_rise=True),
            Claim("Keeping nine weights in ten lowers the ECE, averaged over masks", _AVERAGED[0],
                  ("vanilla",)),
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
        note="The figure is known here by what it is for: random masks at inference make a network "
        "less sure. Its shares of kept weights and its network are not; these are the ladder's, "
        "on the network of table 5.",
    ),
)  # fmt: skip
