"""Group trial specs into Ray trials: networks, head batches, and extra evaluations."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.extra import shifted_bank_key
from tune_calib.engine.head_batch import HEAD_THREADS, head_batch_key
from tune_calib.engine.store import Store, read_manifest
from tune_calib.errors import DamagedFileError
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import column
from tune_calib.tuning.ray.executor import Resources

MAX_HEAD_BATCH = 32
_MAX_NAMED = 2  # rungs that a title names; further ones are counted
TOGETHER = 64  # extra evaluations of a Ray trial at most, so that others can run in parallel
_TEST_COLUMNS = tuple(column("test", name) for name in ("accuracy", "ece"))
Measured = Mapping[str, float]  # metrics on ``test`` in the row of a trial


@dataclass(frozen=True)
class RayTrial:
    """The trials that one Ray trial executes: those of a network, or a head batch."""

    name: str  # of its result files; it depends only on the specs
    trials: tuple[PlannedTrial, ...]  # none for a network that only heads need
    dependents: tuple[PlannedTrial, ...] = ()  # trials that get a row if their network diverges
    title: str = ""  # for the user, e.g. ``heads 9-16 of 40: MaC-Cal, seed 3``

    @property
    def kind(self) -> str:
        """Return the kind of worker that executes it: ``head`` or ``network``."""
        is_head_batch = bool(self.trials) and self.trials[0].spec.head is not None
        return "head" if is_head_batch else "network"

    @property
    def first(self) -> PlannedTrial:
        """Return one of its trials, all of which share its network."""
        return (self.trials or self.dependents)[0]

    @property
    def network_id(self) -> str:
        """Return the id of the network that it trains or needs."""
        return self.first.spec.network_id

    @property
    def threads(self) -> int:
        """Return its CPU cores, which are also its torch threads."""
        return HEAD_THREADS if self.kind == "head" else self.first.spec.network.threads

    @property
    def weight(self) -> int:
        """Return its weight in the estimated time left: 1, or the number of its heads."""
        return 1 if self.kind == "network" else len(self.trials)

    def config(self) -> dict[str, Any]:
        """Return the configuration of its worker as plain JSON values."""

        def plain(trials: Sequence[PlannedTrial]) -> list[dict[str, Any]]:
            return [
                {"spec": t.spec.model_dump(mode="json"), "rung": t.rung, "label": t.label}
                for t in trials
            ]

        return {
            "name": self.name,
            "title": self.title or self.name,
            "kind": self.kind,
            "threads": self.threads,
            "weight": self.weight,
            "trials": plain(self.trials),
            "dependents": plain(self.dependents),
        }


@dataclass(frozen=True)
class ExtraTrial(RayTrial):
    """Extra evaluations of trials of one network, which are part of no hash and may come later."""

    measured: tuple[Measured, ...] = ()  # of each trial
    shift: str | None = None  # a shift set; None for bootstrap intervals on ``test``
    resamples: int = 0  # draws of the samples; may be 0 on a shift set

    @property
    def kind(self) -> str:
        """Return the kind of worker that executes it: ``extra``."""
        return "extra"

    def config(self) -> dict[str, Any]:
        """Return the configuration of its worker as plain JSON values."""
        extra = {"shift": self.shift, "resamples": self.resamples}
        return {**super().config(), **extra, "measured": [dict(each) for each in self.measured]}


@dataclass(frozen=True)
class Plan:
    """Ray trials: networks, and head batches that need them."""

    networks: tuple[RayTrial, ...]
    head_batches: tuple[RayTrial, ...] = ()

    @property
    def trials(self) -> tuple[RayTrial, ...]:
        """Return all Ray trials."""
        return self.networks + self.head_batches


@dataclass(frozen=True)
class Left:
    """The remaining work of a run, as far as its folder shows before it is opened."""

    plan: Plan  # planned - done; for a search, only of its baseline and its defaults
    needs: Sequence[Resources]  # of each kind of Ray trials
    artifact: str | None  # the first one that Ray trials will write to the store
    extra: Sequence[ExtraTrial] = ()  # extra evaluations that finished trials lack
    is_over: bool = False  # all is done; always false for a search, which asks its study
    crashed: list[str] = field(default_factory=list)  # a line for each Ray trial that crashed


def make_plan(
    planned: Sequence[PlannedTrial], done: set[str], largest: int = MAX_HEAD_BATCH
) -> Plan:
    """Plan the trials whose hash is not in ``done``, with at most ``largest`` heads together."""
    networks: dict[str, list[PlannedTrial]] = {}
    heads: dict[tuple[str, str], list[PlannedTrial]] = {}
    for trial in planned:
        if trial.spec.hash in done:
            continue
        networks.setdefault(trial.spec.network_id, []).append(trial)
        if trial.spec.head is not None:
            bank = bank_key(trial.spec, trial.spec.head).identity
            heads.setdefault((bank, head_batch_key(trial.spec.head)), []).append(trial)
    head_batches = [
        group[start : start + largest]
        for group in heads.values()
        for start in range(0, len(group), largest)
    ]
    before = [0, *itertools.accumulate(map(len, head_batches))]
    return Plan(
        networks=tuple(
            RayTrial(
                f"network-{key}",
                tuple(trial for trial in trials if trial.spec.head is None),
                tuple(trials),
                f"network {number} of {len(networks)}: {_name_network(trials)}",
            )
            for number, (key, trials) in enumerate(networks.items(), start=1)
        ),
        head_batches=tuple(
            RayTrial(
                f"heads-{trials[0].spec.hash}-{len(trials)}",
                tuple(trials),
                title=f"head{'s' * (len(trials) > 1)} {_numbers(range(first + 1, last + 1))} of "
                f"{before[-1]}: {format_rungs(trials)}",
            )
            for trials, (first, last) in zip(head_batches, itertools.pairwise(before), strict=True)
        ),
    )


def _name_network(trials: Sequence[PlannedTrial]) -> str:
    """Name a network by the first trial that needs it."""
    own = [t.label for t in trials if t.spec.head is None and t.spec.posthoc is None]
    label = own[0] if own else trials[0].spec.network.method
    return f"{label}, {_format_seeds(trials[:1])}"


def format_suggestions(trials: Sequence[PlannedTrial]) -> str:
    """Format suggestions and seeds, e.g. ``suggestions 41-48, seed 0``."""
    numbers = sorted({trial.rung for trial in trials})
    return f"suggestion{'s' * (len(numbers) > 1)} {_numbers(numbers)}, {_format_seeds(trials)}"


def format_rungs(trials: Sequence[PlannedTrial]) -> str:
    """Format rungs and seeds, e.g. ``vanilla, seed 3``."""
    labels = list(dict.fromkeys(trial.label for trial in trials))
    more = [f"and {len(labels) - _MAX_NAMED} more"] if len(labels) > _MAX_NAMED else []
    return ", ".join([*labels[:_MAX_NAMED], *more, _format_seeds(trials)])


def _format_seeds(trials: Sequence[PlannedTrial]) -> str:
    """Format the seeds of networks, and those of heads if they differ."""
    networks = sorted({trial.spec.network.seed for trial in trials})
    text = f"seed{'s' * (len(networks) > 1)} {_numbers(networks)}"
    own = [(t.spec.network.seed, t.spec.head.seed) for t in trials if t.spec.head is not None]
    if all(one == other for one, other in own):
        return text
    return f"{text}, of heads {_numbers(sorted({head for _, head in own}))}"


def _numbers(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if 0 < last - first == len(numbers) - 1:
        return f"{first}-{last}"
    return ", ".join(map(str, numbers))


def lacking(plan: Plan, store: Store, is_search: bool) -> Iterator[str]:
    """Yield the artifacts that a plan will write to a store, e.g. ``networks/<id>``."""
    networks = {each.network_id: each.first.spec for each in plan.networks}
    for network_id, spec in sorted(networks.items()):
        if not has_network(spec, store):
            yield f"networks/{network_id}"
    # Imported data are a bank already.
    first = [each.first.spec for each in plan.head_batches if each.first.spec.data.imported is None]
    # Not those of post-hoc trials, which need no bank in a store that is read-only.
    for bank in sorted({bank_key(spec, spec.head).identity for spec in first}):
        if part := lacking_of_bank(bank, store, is_search):
            yield part


def lacking_of_bank(bank: str, store: Store, is_search: bool) -> str:
    """Return what the training of heads will write of a feature bank; "" if it is complete."""
    whole = f"banks/{bank}"
    if not store.holds("banks", bank):
        return whole
    try:
        about = read_manifest(store.folder("banks", bank))
        if not about["train_views"]:
            return f"train of {whole}"
        has_test = is_search or about["has_test"]  # a search needs no test split
    except (OSError, KeyError, DamagedFileError):
        return whole  # damaged: it is written again
    return "" if has_test else f"test of {whole}"


def find_extra_trials(
    sets: Sequence[str], bootstrap: int, planned: Sequence[PlannedTrial], out: AnyPath
) -> list[ExtraTrial]:
    """Find the extra evaluations that finished trials lack, with shift sets by name."""
    if not sets and not bootstrap:
        return []
    names = {"spec_hash", "status", *_TEST_COLUMNS}
    finished: dict[str, Measured] = {
        row["spec_hash"]: {name: row[name] for name in _TEST_COLUMNS}
        for row in read_table(out, "trials", columns=names).to_pylist()
        if row["status"] == "done" and row.get(_TEST_COLUMNS[0]) is not None
    }
    trials = [(t, finished[t.spec.hash]) for t in planned if t.spec.hash in finished]
    found = []
    if sets:
        table = read_table(out, "shifts", columns=["spec_hash", "set", "resamples"])
        is_drawn = pc.greater_equal(pc.fill_null(table["resamples"], 0), bootstrap)
        pairs = table.filter(is_drawn).group_by(["spec_hash", "set"]).aggregate([]).to_pylist()
        # A set may consist of parts, such as the severities of a corruption.
        evaluated = {(row["spec_hash"], "/".join(row["set"].split("/")[:2])) for row in pairs}
        for name in sets:
            left = [each for each in trials if (each[0].spec.hash, name) not in evaluated]
            found += group_extra_trials(left, name, bootstrap)
    if bootstrap:
        table = read_table(out, "intervals", columns=["spec_hash", "resamples"])
        drawn = table.filter(pc.equal(table["resamples"], bootstrap))["spec_hash"]
        hashes = set(drawn.to_pylist())
        left = [each for each in trials if each[0].spec.hash not in hashes]
        found += group_extra_trials(left, None, bootstrap)
    # By network, since consecutive trials of a Ray actor share an open network.
    return sorted(found, key=lambda each: each.network_id)


def group_extra_trials(
    trials: Iterable[tuple[PlannedTrial, Measured]], shift: str | None, resamples: int = 0
) -> list[ExtraTrial]:
    """Group trials that are evaluated on the same features into Ray trials."""
    groups: dict[str, list[tuple[PlannedTrial, Measured]]] = {}
    for trial in trials:
        groups.setdefault(shifted_bank_key(trial[0].spec).identity, []).append(trial)
    what = shift or f"bootstrap/{resamples}"
    found = []
    for group in groups.values():
        for start in range(0, len(group), TOGETHER):
            own, measured = zip(*group[start : start + TOGETHER], strict=True)
            hashes = "".join(trial.spec.hash for trial in own)
            found.append(
                ExtraTrial(
                    # The name of its file, which depends only on the specs.
                    f"{what.replace('/', '-')}-{hashlib.sha256(hashes.encode()).hexdigest()[:16]}",
                    own,
                    title=f"{what}: {format_rungs(own)}",
                    measured=measured,
                    shift=shift,
                    resamples=resamples,
                )
            )
    return found
