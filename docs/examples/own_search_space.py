"""Classifier retraining with a search space of your own."""

from dataclasses import replace

from tune_calib.spec.methods import METHODS
from tune_calib.spec.space import SPACES, choice, log_uniform

METHODS.register(replace(METHODS["retrain"], name="retrain_narrow", title="narrow heads"))
SPACES.register(
    name="retrain_narrow",
    settings={
        "head.shape": choice("linear", "bottleneck"),
        # Only searched where it matters; a linear head has no width.
        "head.width": choice(8, 16, 32, head__shape=("bottleneck",)),
        "head.lr": log_uniform(1e-3, 0.1),
    },
    # Tried before the sampler chooses.
    first=({"head.shape": "bottleneck", "head.width": 16, "head.lr": 0.02},),
)

if __name__ == "__main__":
    import tune_calib

    search = tune_calib.search(
        "retrain_narrow",
        trials=16,
        guard=0.05,  # points of accuracy that a better ECE may cost, as a fraction
        epochs=20,
        head_epochs=20,
        address="none",
        plugin=__file__,
        out="runs/own-search-space",
    )
    columns = ["number", "head.shape", "head.width", "head.lr", "mean", "drop", "is_within"]
    print(search.suggestions.sort_values("mean")[columns].head(8).to_string(index=False))
    print("chosen:", search.chosen)
