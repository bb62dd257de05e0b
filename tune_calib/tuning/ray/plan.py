"""Turn trial specs into Ray trials: unique networks first, then populations of heads."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.population import HEAD_THREADS, population_key
from tune_calib.engine.store import ARTIFACT_MANIFEST, Store
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.slots.network import Precision
from tune_calib.tuning.ray import titles

MAX_POPULATION = 32


@dataclass(frozen=True)
class RayTrial:
    """The specs that one Ray trial executes: those of a network, or a population of heads.

    Attributes:
        name: of its result files; made of the spec hashes, so equal work has an equal name.
        trials: what it executes. A network that only heads need has none.
        dependents: trials that need the network and get a row if it diverges.
        title: what people read (``titles``).
    """

    name: str
    trials: tuple[PlannedTrial, ...]
    dependents: tuple[PlannedTrial, ...] = ()
    title: str = ""

    @property
    def kind(self) -> str:
        """Return the kind of worker that executes it."""
        is_population = bool(self.trials) and self.trials[0].spec.head is not None
        return "head" if is_population else "network"

    @property
    def first(self) -> PlannedTrial:
        """Return one of its trials; all of them share its network."""
        return (self.trials or self.dependents)[0]

    @property
    def network_id(self) -> str:
        """Return the network that it trains or needs."""
        return self.first.spec.network_id

    @property
    def threads(self) -> int:
        """Return the CPU cores that Ray reserves for it, also its torch threads."""
        return HEAD_THREADS if self.kind == "head" else self.first.spec.network.threads

    @property
    def precision(self) -> Precision:
        """Return the precision of its network and of the bank of that network."""
        return self.first.spec.network.precision

    @property
    def weight(self) -> int:
        """Return what it counts for in the time that is left: a network, or its heads."""
        return 1 if self.kind == "network" else len(self.trials)

    def config(self) -> dict[str, Any]:
        """Return what its worker gets, as plain JSON values."""
        return {
            "name": self.name,
            "title": self.title or self.name,
            "kind": self.kind,
            "threads": self.threads,
            "weight": self.weight,
            "trials": [_plain(trial) for trial in self.trials],
            "dependents": [_plain(trial) for trial in self.dependents],
        }


def _plain(trial: PlannedTrial) -> dict[str, Any]:
    spec = trial.spec.model_dump(mode="json")
    return {"spec": spec, "rung": trial.rung, "label": trial.label}


@dataclass(frozen=True)
class Plan:
    """Ray trials; the heads of a population need one of the networks."""

    networks: tuple[RayTrial, ...]
    populations: tuple[RayTrial, ...]


def make_plan(
    planned: Sequence[PlannedTrial], done: set[str], largest: int = MAX_POPULATION
) -> Plan:
    """Group the trials whose hash is not among the done ones, at most ``largest`` heads together.

    A network that only heads need is trained for the first of its dependents and leaves no row.
    """
    left = [trial for trial in planned if trial.spec.hash not in done]
    networks: dict[str, list[PlannedTrial]] = {}
    heads: dict[tuple[str, str], list[PlannedTrial]] = {}
    for trial in left:
        networks.setdefault(trial.spec.network_id, []).append(trial)
        if trial.spec.head is not None:
            bank = bank_key(trial.spec, trial.spec.head).identity
            heads.setdefault((bank, population_key(trial.spec.head)), []).append(trial)
    populations = [
        group[start : start + largest]
        for group in heads.values()
        for start in range(0, len(group), largest)
    ]
    before = [0, *itertools.accumulate(map(len, populations))]
    return Plan(
        networks=tuple(
            RayTrial(
                f"network-{key}",
                tuple(trial for trial in trials if trial.spec.head is None),
                tuple(trials),
                titles.network(trials, number, len(networks)),
            )
            for number, (key, trials) in enumerate(networks.items(), start=1)
        ),
        populations=tuple(
            RayTrial(
                f"heads-{trials[0].spec.hash}-{len(trials)}",
                tuple(trials),
                title=titles.heads(trials, first, before[-1]),
            )
            for trials, first in zip(populations, before, strict=False)
        ),
    )


def lacking(plan: Plan, store: Store, is_search: bool) -> list[str]:
    """List the artifacts that a plan will write into a store, e.g. ``networks/<id>``.

    Banks of a search need no test split.
    """
    networks = {each.network_id: each.first.spec for each in plan.networks}
    absent = [
        f"networks/{i}" for i, spec in sorted(networks.items()) if not has_network(spec, store)
    ]
    # What is imported is a bank already.
    first = [each.first.spec for each in plan.populations if each.first.spec.data.imported is None]
    # Not those of post-hoc trials, which do without where they cannot be kept.
    for bank in sorted({bank_key(spec, spec.head).identity for spec in first}):
        if not store.holds("banks", bank):
            absent.append(f"banks/{bank}")
            continue
        try:
            about = json.loads((store.folder("banks", bank) / ARTIFACT_MANIFEST).read_bytes())
            has_train = bool(about["train_views"])
        except (OSError, ValueError, KeyError, TypeError):  # damaged: it is made again
            absent.append(f"banks/{bank}")
            continue
        if not has_train:
            absent.append(f"train of banks/{bank}")
        if not (is_search or about.get("has_test", True)):
            absent.append(f"test of banks/{bank}")
    return absent
