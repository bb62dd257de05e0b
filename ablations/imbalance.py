"""Methods with few training images of some classes; the evaluation splits stay balanced.

The imbalance is a setting of the data and not of a rung, ``--set data.imbalance=10``: a sweep then
has one training set, and its own network check. An experiment file runs several factors
(docs/pages/ladders.md#class-imbalance).
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
                "labels smoothed by the norm of the features",
                {"network": {"method": "fedlas_ls"}},
                kind="variant",
            ),
            Rung(
                "temperature",
                "fitted on balanced images; the row to beat",
                {"posthoc": {"method": "temperature"}},
                kind="variant",
            ),
        ),
    ),
)
