"""Records of checks, and the networks that they use: a toy network, and a real one on digits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.files.store import Store
from tune_calib.methods._base import Batch, NetworkContext, NetworkMethod
from tune_calib.models.base import declare_stages
from tune_calib.models.network import Network
from tune_calib.spec.methods import MethodInfo, Params
from tune_calib.spec.trial import TrialSpec

CPU = torch.device("cpu")
# Wider than the 100 classes of a check: BalCal needs as many features as classes.
SAMPLES, WIDTH = 12, 128  # of the toy network
NETWORK = {"backbone": "small_cnn", "epochs": 1, "augment": "none"}
HEAD = {"epochs": 3, "augment": "none"}
FEW = {"train_fraction": 0.3}


class FailedCheckError(AssertionError):
    """A method fails a check."""


class NotApplicableError(Exception):
    """A check does not apply to a method."""


def require(condition: object, complaint: str) -> None:
    if not condition:
        raise FailedCheckError(complaint)


class Bench:
    """Small real data and a network trained on them, created once for all checked methods."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @cached_property
    def few(self) -> Development:
        return load_development(TrialSpec.build(data=FEW, network={}).data, None)

    @cached_property
    def bank(self) -> FeatureBank:
        """Return the feature bank of a network trained on the digits for one epoch."""
        spec = TrialSpec.build(network=NETWORK, head={"method": "retrain", **HEAD})
        development = load_development(spec.data, None)
        run = NetworkTraining(spec, self.store, development, CPU)
        while run.step() is not None:
            pass
        run.close()
        key = bank_key(spec, spec.head)
        # The test split is loaded only if the bank is not yet in the store.
        return ensure_bank(
            FeatureBank,
            spec,
            key,
            self.store,
            lambda: (development, load_test(spec.data, None)),
            CPU,
        )


Run = Callable[[MethodInfo, Bench], None]


@dataclass(frozen=True)
class Check:
    """A rule that every method of a kind must follow, with a name and a sentence."""

    name: str
    rule: str
    # Raises ``FailedCheckError`` if a method breaks the rule and ``NotApplicableError`` if the rule
    # does not apply. Any other exception is an error of the method.
    run: Run


CHECKS: dict[str, list[Check]] = {"any": [], "network": [], "head": [], "posthoc": []}
"""The checks of all methods, and those of each kind."""


def check(kind: str, name: str, rule: str) -> Callable[[Run], Run]:

    def add(run: Run) -> Run:
        CHECKS[kind].append(Check(name, rule, run))
        return run

    return add


def toy_network(classes: int) -> Network:
    """Build two small stages and a linear head, without normalisation, which couples samples."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, WIDTH, 3))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Softplus())
    backbone = nn.Sequential(body, pool)
    declare_stages(backbone, list)
    return Network(backbone, WIDTH, classes)


def toy_method(
    info: MethodInfo,
    network: Network,
    classes: int,
    dtype: torch.dtype = torch.float32,
    epochs: int = 4,
    params: Params | None = None,
) -> NetworkMethod:
    """Build a network method for the toy network in its first step, both of the same dtype."""
    context = NetworkContext(classes, WIDTH, SAMPLES, epochs, seed=0)
    method: NetworkMethod = info.implementation(params or info.params(), context)
    method.adapt(network)
    network.to(dtype)
    method.to(dtype)
    method.begin_epoch(0, torch.Generator().manual_seed(1))
    method.drawn = method.draw(SAMPLES)
    return method


def toy_batch(
    classes: int, dtype: torch.dtype = torch.float32, order: Tensor | None = None
) -> Batch:
    """Draw noise images with cyclic labels, optionally permuted."""
    chance = torch.Generator().manual_seed(2)
    # Drawn in double precision, so that batches of both types have the same numbers.
    images = torch.randn(SAMPLES, 1, 6, 6, generator=chance, dtype=torch.float64).to(dtype)
    labels = torch.arange(SAMPLES) % classes
    order = torch.arange(SAMPLES) if order is None else order
    return Batch(images[order], labels[order], order)
