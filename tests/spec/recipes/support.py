"""What the tests of recipes ask for."""

from itertools import product

from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import RECIPES, fitting
from tune_calib.spec.resolved import ResolvedRequest

BOTH = [(dataset, name) for dataset, name in product(DATASETS, RECIPES)]
FITTING = [(dataset, name) for dataset in DATASETS for name in fitting(dataset)]
FOUND = {
    "classes": 3, "channels": 3, "stored": 32, "size": 32,
    "mean": (0.5,) * 3, "std": (0.2,) * 3, "digest": "0",
}  # fmt: skip
WEIGHTS = "0123456789abcdef"
NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]


def request_for(
    dataset: str, name: str | None, own_recipes: bool = False, **network
) -> ResolvedRequest:
    """With what only files say of some data sets, and with weights where they are needed."""
    facts = {"found": FOUND} if DATASETS[dataset].general else {}
    weights = {"weights": WEIGHTS} if name and RECIPES[name].pretrained else {}
    settings = {"data": {"dataset": dataset, **facts}, "network": {**weights, **network}}
    return ResolvedRequest(settings, own_recipes=own_recipes).with_recipe(name)


def spec_of(dataset: str, name: str | None, method: str = "ce", **network):
    (trial,) = expand(build_comparison([method]), request_for(dataset, name, **network))
    return trial.spec


def needs_stages(method: str) -> bool:
    return method in METHODS and "stages" in METHODS[method].needs
