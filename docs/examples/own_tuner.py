"""Search the settings of a head in a Ray Tuner of your own."""

import os
from pathlib import Path
from typing import Any

from ray import tune

from tune_calib.tuning.ray.trainables import trainable

OUT = Path("runs/own-tuner").resolve()  # Ray's workers have another working directory
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # else Ray prints tables in spite of `verbose`

if __name__ == "__main__":
    tuner = tune.Tuner(
        trainable("mac_cal"),
        param_space={
            "network": {"backbone": "small_cnn", "epochs": 10},
            "head": {"epochs": 10, "gamma": tune.uniform(0.7, 1.0)},
            "run": {"out": str(OUT / "results"), "store": str(OUT / "store")},
        },
        tune_config=tune.TuneConfig(
            metric="select/ece",
            mode="min",
            num_samples=3,
            max_concurrent_trials=1,  # the first trains the network, the others find it
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(storage_path=str(OUT / "ray"), verbose=0),
    )
    results: Any = tuner.fit()  # iterable, although Ray's annotations do not say so
    for result in sorted(results, key=lambda result: result.metrics["select/ece"]):
        ece, accuracy = result.metrics["select/ece"], result.metrics["select/accuracy"]
        print(f"gamma {result.config['head']['gamma']:.3f}: ECE {ece:.3f}, accuracy {accuracy:.3f}")
