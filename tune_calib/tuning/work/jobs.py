"""Group trials into jobs, each of one worker: networks, head batches, extra evaluations."""

import math
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow.compute as pc

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.extra import shifted_bank_key
from tune_calib.engine.head_batch import HEAD_THREADS, head_batch_key
from tune_calib.files.documents import hash_text
from tune_calib.files.paths import AnyPath, parse_path
from tune_calib.files.store import Store
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import column
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.progress.tracker import EVALUATIONS, TRIALS
from tune_calib.tuning.work.executor import OVER, Resources, configuration

MAX_HEAD_BATCH = 32
_MAX_NAMED = 2  # rungs that a title names; further ones are counted
TOGETHER = 64  # extra evaluations or fits of a job at most, so that others can run in parallel
_TEST_COLUMNS = (column("test", "accuracy"), column("test", "ece"))


@dataclass(frozen=True)
class Job:
    """The trials that one worker executes together: those of a network, or a head batch."""

    name: str  # of its result files; it depends only on the specs
    trials: tuple[PlannedTrial, ...]  # none for a network that only heads need
    dependents: tuple[PlannedTrial, ...] = ()  # trials that get a row if their network diverges
    pooled: tuple[PlannedTrial, ...] = ()  # of a network that a pool needs; it gets no row
    title: str = ""  # for the user, e.g. ``heads 9-16 of 40: MaC-Cal, seed 3``
    # Of extra evaluations, which are part of no hash and may come later: ``shift`` (a shift set, or
    # None for intervals on ``test``), ``resamples``, and ``measured`` (of each trial).
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        if self.extra:
            return "extra"
        has_heads = bool(self.trials) and self.trials[0].spec.head is not None
        return "head" if has_heads else "network"

    @property
    def first(self) -> PlannedTrial:
        return (self.trials or self.dependents or self.pooled)[0]

    @property
    def network_id(self) -> str:
        return self.first.spec.network_id

    @property
    def pooled_ids(self) -> set[str]:
        """Return the networks that it waits for to pool them; imports exist already."""
        is_waiting = self.kind == "network" and self.first.spec.data.imported is None
        return {spec.network_id for spec in self.first.spec.members} if is_waiting else set()

    @property
    def is_pass(self) -> bool:
        spec = self.first.spec
        return bool(self.dependents) and spec.network.is_frozen and spec.data.imported is None

    @property
    def threads(self) -> int:
        """Return its torch threads, which are also its CPU cores unless it is a pass."""
        return HEAD_THREADS if self.kind == "head" else self.first.spec.network.threads

    @property
    def weight(self) -> int:
        """Return its weight in the estimated time left: 1, or the number of its heads."""
        return 1 if self.kind == "network" else len(self.trials)

    def config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title or self.name,
            "kind": self.kind,
            "threads": self.threads,
            "weight": self.weight,
            "trials": list(map(PlannedTrial.plain, self.trials)),
            "dependents": list(map(PlannedTrial.plain, self.dependents)),
            "pooled": list(map(PlannedTrial.plain, self.pooled)),
            **self.extra,
        }


@dataclass(frozen=True)
class RemainingWork:
    networks: tuple[Job, ...] = ()
    # Head batches, and fits to splits that trials draw; they need these or earlier networks.
    head_batches: tuple[Job, ...] = ()
    extra: tuple[Job, ...] = ()  # evaluations that finished trials lack
    needs: Sequence[Resources] = ()  # of each kind of job
    is_search: bool = False  # suggestions follow, whose number the study knows
    errors: dict[str, str] = field(default_factory=dict)  # a line for each crashed job by its name

    @property
    def is_over(self) -> bool:
        return not (self.is_search or self.networks or self.extra)


class JobSource:
    """Passes on networks, and head batches when their network is trained, up to a deadline."""

    at_once: int | None = None
    kinds: Mapping[str, int]
    cores = 1  # of a pass over images

    def __init__(
        self,
        title: str,
        jobs: Sequence[Job],
        provenance: Provenance,
        waiting: Sequence[Job] = (),
        deadline: float = math.inf,
    ) -> None:
        self.title, self.total, self.passes = title, len(jobs) + len(waiting), len(jobs)
        self.provenance, self.deadline = provenance, deadline
        self.store = Store(parse_path(provenance.store))
        self.units, self.unit = 0, TRIALS
        kinds = Counter[str]()
        for job in chain(jobs, waiting):
            self.units += len(job.trials)
            kinds[f"{job.kind}s"] += job.weight
            if job.extra:
                self.unit = EVALUATIONS
        self.kinds, self.ready = kinds, deque(job for job in jobs if not job.pooled_ids)
        self.pools = [(job.pooled_ids, job) for job in jobs if job.pooled_ids]
        self.waiting: dict[str, list[Job]] = {}
        for job in waiting:
            self.waiting.setdefault(job.network_id, []).append(job)
        self.running: dict[str, Job] = {}

    def suggest(self, trial_id: str) -> Any:
        if time.monotonic() > self.deadline:
            return OVER
        if not self.ready:
            awaits_heads = any(job.kind == "network" for job in self.running.values())
            return None if awaits_heads else OVER
        job = self.running[trial_id] = self.ready.popleft()
        config = job.config()
        if job.is_pass and self.cores > job.threads:
            config["cores"] = self.cores
        return configuration(self.provenance, config)

    def end(self, trial_id: str) -> None:
        """Make the heads of a finished network ready, but not those of one that failed.

        The job of a pool is ready in both cases, since it writes the row that says so.
        """
        job = self.running.pop(trial_id)
        if job.kind == "network" and has_network(job.first.spec, self.store):
            self.ready.extend(self.waiting.pop(job.network_id, []))
        for missing, pool in self.pools:
            missing.discard(job.network_id)
            if not missing:
                self.ready.append(pool)
        self.pools = [entry for entry in self.pools if entry[0]]


def resources_of(jobs: Iterable[Job], gpus: float) -> list[Resources]:
    kinds = {(job.threads, job.first.spec.network.precision) for job in jobs}
    return [Resources(threads, gpus, precision) for threads, precision in sorted(kinds)]


def make_plan(
    planned: Sequence[PlannedTrial], done: set[str], largest: int = MAX_HEAD_BATCH
) -> RemainingWork:
    """Plan the trials whose hash is not in ``done``, with at most ``largest`` heads together."""
    networks: dict[str, list[PlannedTrial]] = {}
    of_network: dict[str, list[PlannedTrial]] = {}  # trials that the job of a network evaluates
    fits: dict[str, list[PlannedTrial]] = {}
    heads: dict[tuple[Any, ...], list[PlannedTrial]] = {}
    pooled: dict[str, PlannedTrial] = {}  # a member of a pool by its network
    for trial in planned:
        spec = trial.spec
        if spec.hash in done:
            continue
        networks.setdefault(spec.network_id, []).append(trial)
        for member in spec.members if spec.data.imported is None else ():
            pooled[member.network_id] = replace(trial, spec=member)
        if spec.head is not None:
            split_seed = None
            if spec.is_redrawn and spec.head.select != "last":
                split_seed = spec.data.split_seed
            key = (bank_key(spec, spec.head).identity, head_batch_key(spec.head), split_seed)
            heads.setdefault(key, []).append(trial)
        elif spec.data != spec.network_data:
            fits.setdefault(spec.network_id, []).append(trial)
        else:
            of_network.setdefault(spec.network_id, []).append(trial)
    network_jobs, ids = [], dict.fromkeys([*networks, *pooled])
    for number, network_id in enumerate(ids, start=1):
        trials = tuple(networks.get(network_id, ()))
        evaluated = tuple(of_network.get(network_id, ()))
        members = (pooled[network_id],) if network_id in pooled else ()
        # By its first trial without head and transform, or else by its method.
        named = trials or members
        plain = (t.label for t in named if t.spec.head is None and t.spec.posthoc is None)
        label = next(plain, named[0].spec.network.method_name)
        title = f"network {number} of {len(ids)}: {label}, {_format_seeds(named[:1])}"
        job = Job(f"network-{network_id}", evaluated, trials, pooled=members, title=title)
        network_jobs.append(job)
    batches = [*_list_batches("fit", fits, TOGETHER), *_list_batches("head", heads, largest)]
    return RemainingWork(tuple(network_jobs), tuple(batches))


def _list_batches(
    noun: str, groups: Mapping[Any, Sequence[PlannedTrial]], largest: int
) -> Iterator[Job]:
    """Yield jobs of at most ``largest`` heads of a group, or as many fits to drawn splits."""
    first, total = 1, sum(map(len, groups.values()))
    for group in groups.values():
        # A head that several trials evaluate, with and without a transform, is trained once.
        of_heads: dict[Any, list[PlannedTrial]] = {}
        for trial in group:
            of_heads.setdefault(trial.spec.head or trial.spec.hash, []).append(trial)
        parts = list(of_heads.values())
        for start in range(0, len(parts), largest):
            batch = list(chain.from_iterable(parts[start : start + largest]))
            numbers = _numbers(range(first, first + len(batch)))
            title = f"{_plural(noun, batch)} {numbers} of {total}: {format_rungs(batch)}"
            yield Job(f"{noun}s-{batch[0].spec.hash}-{len(batch)}", tuple(batch), title=title)
            first += len(batch)


def _plural(noun: str, counted: Collection[Any]) -> str:
    return noun if len(counted) == 1 else f"{noun}s"


def format_suggestions(trials: Sequence[PlannedTrial]) -> str:
    """Format suggestions and seeds, e.g. ``suggestions 41-48, seed 0``."""
    numbers = sorted({trial.rung for trial in trials})
    return f"{_plural('suggestion', numbers)} {_numbers(numbers)}, {_format_seeds(trials)}"


def format_rungs(trials: Sequence[PlannedTrial]) -> str:
    """Format rungs and seeds, e.g. ``vanilla, seed 3``."""
    labels = list(dict.fromkeys(trial.label for trial in trials))
    if (further := len(labels) - _MAX_NAMED) > 0:
        labels[_MAX_NAMED:] = [f"and {further} more"]
    return ", ".join([*labels, _format_seeds(trials)])


def _format_seeds(trials: Sequence[PlannedTrial]) -> str:
    """Format the seeds of networks, of splits if they are drawn, and of heads if they differ."""
    specs = [trial.spec for trial in trials]
    seeds = {
        "seed": {spec.network.seed for spec in specs},
        "split": {spec.data.split_seed for spec in specs if spec.data.split_seed is not None},
        "head seed": {spec.head.seed for spec in specs if spec.head is not None},
    }
    if seeds["head seed"] == seeds["seed"]:
        seeds["head seed"] = set()
    parts = [f"{_plural(name, n)} {_numbers(sorted(n))}" for name, n in seeds.items() if n]
    return ", ".join(parts)


def _numbers(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if 0 < last - first == len(numbers) - 1:
        return f"{first}-{last}"
    return ", ".join(map(str, numbers))


def find_extra_jobs(
    sets: Sequence[str], bootstrap: int, planned: Sequence[PlannedTrial], out: AnyPath
) -> list[Job]:
    """Find the extra evaluations that finished trials lack, with shift sets by name."""
    if not sets and not bootstrap:
        return []
    names = {"spec_hash", "status", *_TEST_COLUMNS}
    finished = {}
    for row in read_table(out, "trials", columns=names).to_pylist():
        if row["status"] == "done" and row.get(_TEST_COLUMNS[0]) is not None:
            finished[row["spec_hash"]] = {name: row[name] for name in _TEST_COLUMNS}
    trials = [trial for trial in planned if trial.spec.hash in finished]
    lacking: dict[str | None, list[PlannedTrial]] = {}
    if sets:
        table = read_table(out, "shifts", columns=["spec_hash", "set", "resamples"])
        is_drawn = pc.greater_equal(pc.fill_null(table["resamples"], 0), bootstrap)
        pairs = table.filter(is_drawn).group_by(["spec_hash", "set"]).aggregate([]).to_pylist()
        # A set may consist of parts, such as the severities of a corruption.
        evaluated = {(row["spec_hash"], "/".join(row["set"].split("/")[:2])) for row in pairs}
        for name in sets:
            lacking[name] = [t for t in trials if (t.spec.hash, name) not in evaluated]
    if bootstrap:
        table = read_table(out, "intervals", columns=["spec_hash", "resamples"])
        drawn = set(table.filter(pc.equal(table["resamples"], bootstrap))["spec_hash"].to_pylist())
        lacking[None] = [trial for trial in trials if trial.spec.hash not in drawn]
    jobs: list[Job] = []
    for shift, missing in lacking.items():
        networks: dict[str, list[PlannedTrial]] = {}
        for trial in missing:
            networks.setdefault(shifted_bank_key(trial.spec).identity, []).append(trial)
        for group in networks.values():
            for start in range(0, len(group), TOGETHER):
                members = tuple(group[start : start + TOGETHER])
                hashes = [trial.spec.hash for trial in members]
                measured = [finished[spec_hash] for spec_hash in hashes]
                extra = {"shift": shift, "resamples": bootstrap, "measured": measured}
                name = shift or f"bootstrap/{bootstrap}"
                # The name of its file depends only on the specs.
                file = f"{name.replace('/', '-')}-{hash_text(''.join(hashes))[:16]}"
                title = f"{name}: {format_rungs(members)}"
                jobs.append(Job(file, members, title=title, extra=extra))
    # By network, since consecutive jobs of a Ray actor share an open network.
    return sorted(jobs, key=lambda job: job.network_id)
