"""The incremental ablation of MaC-Cal (arXiv 2508.09116, table 5).

Every rung is a setting of the method ``mac_cal``. Before the rungs with adaptive sparsity, q stays
at q0. The controls, which the paper lacks, retrain the same head without a mask.
"""

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

# q moves by tau0 at most, so that 0 holds it at q0.
_FIXED = {"method": "mac_cal", "tau0": 0.0}

MAC_CAL = LADDERS.register(
    Ladder(
        name="mac_cal",
        title="MaC-Cal: masked classifier retraining, one ingredient at a time",
        published="maccal/table5",
        rungs=(
            Rung("vanilla", "the network's own head", published="Vanilla", kind="base"),
            Rung(
                "+ masked retraining",
                "fresh linear head, weights masked each epoch, dense gradient",
                # The next rung differs only because the stored weights are masked: a mask in the
                # forward pass alone restricts the gradient by itself, unless it is detached.
                {"head": {**_FIXED, "shape": "linear", "gradient": "dense"}},
                published="+Masked Retraining",
            ),
            Rung(
                "+ gradient restriction",
                "only kept weights receive a gradient",
                {"head": {**_FIXED, "shape": "linear", "gradient": "masked"}},
                published="+Gradient Restriction",
            ),
            Rung(
                "+ classifier restructure",
                "two-layer bottleneck instead of the linear head",
                {"head": {**_FIXED, "shape": "bottleneck", "gradient": "masked"}},
                published="+Classifier Restructure",
            ),
            Rung(
                "+ static adaptive sparsity",
                "q follows gamma acc - conf, clipped to a constant tau",
                {
                    "head": {
                        "method": "mac_cal",
                        "shape": "bottleneck",
                        "gradient": "masked",
                        # tau stays at tau0, and so q may travel as far in the last epoch as in the
                        # first.
                        "tau_decay": 0.0,
                    }
                },
                published="+Static Adaptive Sparsity",
            ),
            Rung(
                "+ decaying adaptive sparsity",
                "tau decays exponentially: the full method",
                {"head": {"method": "mac_cal", "shape": "bottleneck", "gradient": "masked"}},
                published="+Decaying Adaptive Sparsity",
            ),
            Rung(
                "retrain linear (no mask)",
                "fresh linear head, no mask",
                {"head": {"method": "retrain", "shape": "linear"}},
                kind="control",
            ),
            Rung(
                "retrain bottleneck (no mask)",
                "fresh bottleneck head, no mask",
                {"head": {"method": "retrain", "shape": "bottleneck"}},
                kind="control",
            ),
        ),
    ),
)
