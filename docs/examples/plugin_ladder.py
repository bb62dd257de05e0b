"""A ladder that adds temperature scaling to label smoothing."""

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

SMOOTHED = {"method": "ls", "alpha": 0.1}

LADDERS.register(
    Ladder(
        name="smoothing",
        title="Label smoothing, then temperature scaling",
        rungs=(
            Rung("ce", "the network's own head", kind="base"),
            Rung("+ label smoothing", "a tenth of the label mass", {"network": SMOOTHED}),
            Rung(
                "+ temperature",
                "fitted on calib",
                {"network": SMOOTHED, "posthoc": {"method": "temperature"}},
            ),
            Rung(
                "temperature alone",
                "without smoothing",
                {"posthoc": {"method": "temperature"}},
                kind="control",
            ),
        ),
    )
)
