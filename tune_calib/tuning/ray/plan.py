"""From trial specs to Ray trials: unique networks first, then populations of heads.

To do = planned - done: a trial is done when its result row is on disk.
"""

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
    """The specs that one Ray trial carries out: a network's own, or a population of heads.

    Attributes:
        name: of its result files; made of the spec hashes, so equal work has an equal name.
        trials: what it carries out. A network trial may have none to evaluate.
        dependents: trials that need the network; told when it diverges.
        title: what people read (``titles``).
    """

    name: str
    trials: tuple[PlannedTrial, ...]
    dependents: tuple[PlannedTrial, ...] = ()
    title: str = ""

    @property
    def kind(self) -> str:
        """``"head"`` of a population, ``"network"`` else."""
        is_population = bool(self.trials) and self.trials[0].spec.head is not None
        return "head" if is_population else "network"

    @property
    def first(self) -> PlannedTrial:
        """One of them, which names the network that is trained, or that the heads stand on."""
        return (self.trials or self.dependents)[0]

    @property
    def network_id(self) -> str:
        """The network that is trained, or that the heads stand on."""
        return self.first.spec.network_id

    @property
    def threads(self) -> int:
        """CPU cores that Ray keeps for it, also its torch threads."""
        if self.kind == "head":
            return HEAD_THREADS
        return self.first.spec.network.threads

    @property
    def precision(self) -> Precision:
        """Of its network, and of the bank of that network."""
        return self.first.spec.network.precision

    def config(self) -> dict[str, Any]:
        """What travels to the worker, as plain JSON values."""
        return {
            "name": self.name,
            "title": self.title or self.name,
            "kind": self.kind,
            "threads": self.threads,
            "trials": [plain(trial) for trial in self.trials],
            "dependents": [plain(trial) for trial in self.dependents],
        }


@dataclass(frozen=True)
class Plan:
    """Ray trials; the heads of a population need one of the networks."""

    networks: tuple[RayTrial, ...]
    populations: tuple[RayTrial, ...]


def make_plan(
    planned: Sequence[PlannedTrial], done: set[str], largest: int = MAX_POPULATION
) -> Plan:
    """Group what is left to do.

    Args:
        planned: all trials of the sweep.
        done: spec hashes of which a result row is on disk.
        largest: heads of a population.
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
            _network_trial(key, trials, titles.network(trials, number, len(networks)))
            for number, (key, trials) in enumerate(networks.items(), start=1)
        ),
        populations=tuple(
            _population(trials, titles.heads(trials, first, before[-1]))
            for trials, first in zip(populations, before, strict=False)
        ),
    )


def lacking(plan: Plan, store: Store, is_search: bool) -> list[str]:
    """Artifacts that the trials of a plan will have to write, e.g. ``networks/<id>``.

    Args:
        plan: the plan.
        store: what it holds is not lacking.
        is_search: banks without the test split will do.
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


def _network_trial(network_id: str, trials: list[PlannedTrial], title: str) -> RayTrial:
    own = tuple(trial for trial in trials if trial.spec.head is None)
    # A network that only heads need has no spec of its own among the planned; it is trained
    # for the first of its dependents and leaves no row.
    return RayTrial(f"network-{network_id}", own, tuple(trials), title)


def _population(trials: list[PlannedTrial], title: str) -> RayTrial:
    return RayTrial(f"heads-{trials[0].spec.hash}-{len(trials)}", tuple(trials), title=title)


def plain(trial: PlannedTrial) -> dict[str, Any]:
    """A trial as it travels to a worker."""
    return {
        "spec": trial.spec.model_dump(mode="json"),
        "rung": trial.rung,
        "label": trial.label,
    }
