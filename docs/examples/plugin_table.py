"""Table 2 of an invented paper: label smoothing beside temperature scaling."""

from tune_calib.spec.reproduction import REPRODUCTIONS, SMOKE, Claim, Reproduction, Run, Setting

REPRODUCTIONS.register(
    Reproduction(
        name="smoothing/table2",
        title="Label smoothing beside temperature scaling",
        runs=(Run("methods", methods=("ce", "ls", "temperature", "ls+temperature")),),
        metrics=("accuracy", "ece"),
        claims=(
            Claim("Label smoothing lowers the ECE", "ls", ("ce",), run="methods"),
            Claim(
                "Temperature scaling has a lower ECE than smoothing",
                "temperature",
                ("ls",),
                run="methods",
            ),
            Claim(
                "Smoothing costs half a point of accuracy at most",
                "ls",
                ("ce",),
                "accuracy",
                kind="size",
                least=-0.005,
                run="methods",
            ),
        ),
        scales={
            "smoke": SMOKE,
            "cpu": (Setting(("cifar10",), set={"network": {"precision": "bf16"}}),),
            "paper": (Setting(("cifar10",), ("resnet50",), "focal", seeds=5, gpus=1.0),),
        },
        note="Its numbers are invented too, so none stand beside.",
    )
)
