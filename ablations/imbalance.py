"""Methods where some classes have few training images; the splits that judge stay balanced.

How few is a setting of the data and not of a rung, ``--set data.imbalance=10``: a sweep then has
one training set, and says of its own base network whether it is over-confident. A sweep file runs
several factors (docs/pages/ladders.md#class-imbalance).
"""

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

LADDERS.register(
    Ladder(
        name="imbalance",
        title="Methods under class imbalance",
        rungs=(
            Rung("vanilla", "the network's own head", kind="base"),
            Rung("TST", "a larger head", {"head": {"method": "tst"}}, kind="variant"),
            Rung("MaC-Cal", "a masked head", {"head": {"method": "mac_cal"}}, kind="variant"),
            Rung(
                "FeDLaS-LS",
                "labels smoothed by the size of features",
                {"network": {"method": "fedlas_ls"}},
                kind="variant",
            ),
            Rung(
                "temperature",
                "the row to beat; fitted on balanced images",
                {"posthoc": {"method": "temperature"}},
                kind="variant",
            ),
        ),
    ),
)
