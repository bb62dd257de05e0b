"""Group trials into jobs, each of one worker: networks, head batches, extra evaluations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow.compute as pc

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.extra import shifted_bank_key
from tune_calib.engine.head_batch import HEAD_THREADS, head_batch_key
from tune_calib.errors import DamagedFileError
from tune_calib.files.hashes import hash_text
from tune_calib.files.paths import AnyPath
from tune_calib.files.store import Store, read_manifest
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import column
from tune_calib.tuning.work.executor import Resources

MAX_HEAD_BATCH = 32
_MAX_NAMED = 2  # rungs that a title names; further ones are counted
TOGETHER = 64  # extra evaluations or fits of a job at most, so that others can run in parallel
_TEST_COLUMNS = (column("test", "accuracy"), column("test", "ece"))
Measured = Mapping[str, float]  # metrics on ``test`` in the row of a trial


@dataclass(frozen=True)
class Job:
    """The trials that one worker executes together: those of a network, or a head batch."""

    name: str  # of its result files; it depends only on the specs
    trials: tuple[PlannedTrial, ...]  # none for a network that only heads need
    dependents: tuple[PlannedTrial, ...] = ()  # trials that get a row if their network diverges
    title: str = ""  # for the user, e.g. ``heads 9-16 of 40: MaC-Cal, seed 3``

    @property
    def kind(self) -> str:
        """Return the kind of worker that executes it: ``head`` or ``network``."""
        has_heads = bool(self.trials) and self.trials[0].spec.head is not None
        return "head" if has_heads else "network"

    @property
    def first(self) -> PlannedTrial:
        """Return one of its trials, all of which share its network."""
        return (self.trials or self.dependents)[0]

    @property
    def network_id(self) -> str:
        """Return the id of the network that it trains or needs."""
        return self.first.spec.network_id

    @property
    def is_pass(self) -> bool:
        """Return whether it only passes images through a frozen network."""
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
        """Return the configuration of its worker as plain JSON values."""
        return {
            "name": self.name,
            "title": self.title or self.name,
            "kind": self.kind,
            "threads": self.threads,
            "weight": self.weight,
            "trials": list(map(PlannedTrial.plain, self.trials)),
            "dependents": list(map(PlannedTrial.plain, self.dependents)),
        }


@dataclass(frozen=True)
class ExtraJob(Job):
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
        measured = list(map(dict, self.measured))
        extra = {"shift": self.shift, "resamples": self.resamples, "measured": measured}
        return {**super().config(), **extra}


@dataclass(frozen=True)
class RemainingWork:
    """Work that the results in the run folder do not cover yet."""

    networks: tuple[Job, ...] = ()
    # Head batches, and fits to splits that trials draw; they need these or earlier networks.
    head_batches: tuple[Job, ...] = ()
    extra: tuple[ExtraJob, ...] = ()  # that finished trials lack
    needs: Sequence[Resources] = ()  # of each kind of job
    artifact: str | None = None  # the first one that jobs will write to the store
    # Suggestions follow, whose number the study knows.
    is_search: bool = False
    crashed: list[str] = field(default_factory=list)  # a line for each job that crashed

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Return the jobs of networks and heads."""
        return self.networks + self.head_batches

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to do, as far as the folder shows."""
        return not (self.is_search or self.networks or self.extra)


def make_plan(
    planned: Sequence[PlannedTrial], done: set[str], largest: int = MAX_HEAD_BATCH
) -> RemainingWork:
    """Plan the trials whose hash is not in ``done``, with at most ``largest`` heads together."""
    networks: dict[str, list[PlannedTrial]] = {}
    of_network: dict[str, list[PlannedTrial]] = {}  # trials that the job of a network evaluates
    fits: dict[str, list[PlannedTrial]] = {}
    heads: dict[tuple[Any, ...], list[PlannedTrial]] = {}
    for trial in planned:
        spec = trial.spec
        if spec.hash in done:
            continue
        networks.setdefault(spec.network_id, []).append(trial)
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
    network_jobs = []
    for number, (network_id, trials) in enumerate(networks.items(), start=1):
        title = f"network {number} of {len(networks)}: {_name_network(trials)}"
        evaluated = tuple(of_network.get(network_id, ()))
        network_jobs.append(Job(f"network-{network_id}", evaluated, tuple(trials), title=title))
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


def _plural(noun: str, counted: Sequence[Any]) -> str:
    return noun if len(counted) == 1 else f"{noun}s"


def _name_network(trials: Sequence[PlannedTrial]) -> str:
    """Name a network by its first trial without head and transform, or else by its method."""
    label = trials[0].spec.network.method
    for trial in trials:
        if trial.spec.head is None and trial.spec.posthoc is None:
            label = trial.label
            break
    return f"{label}, {_format_seeds(trials[:1])}"


def format_suggestions(trials: Sequence[PlannedTrial]) -> str:
    """Format suggestions and seeds, e.g. ``suggestions 41-48, seed 0``."""
    numbers = sorted({trial.rung for trial in trials})
    return f"{_plural('suggestion', numbers)} {_numbers(numbers)}, {_format_seeds(trials)}"


def format_rungs(trials: Sequence[PlannedTrial]) -> str:
    """Format rungs and seeds, e.g. ``vanilla, seed 3``."""
    labels = list(dict.fromkeys(trial.label for trial in trials))
    further = len(labels) - _MAX_NAMED
    if further > 0:
        labels[_MAX_NAMED:] = [f"and {further} more"]
    return ", ".join([*labels, _format_seeds(trials)])


def _format_seeds(trials: Sequence[PlannedTrial]) -> str:
    """Format the seeds of networks, and those of heads if they differ."""
    networks = sorted({trial.spec.network.seed for trial in trials})
    text = f"{_plural('seed', networks)} {_numbers(networks)}"
    splits = set[int]()
    for trial in trials:
        if trial.spec.data.split_seed is not None:
            splits.add(trial.spec.data.split_seed)
    if splits:
        text += f", {_plural('split', sorted(splits))} {_numbers(sorted(splits))}"
    heads, is_paired = set[int](), True
    for trial in trials:
        if trial.spec.head is not None:
            heads.add(trial.spec.head.seed)
            is_paired &= trial.spec.head.seed == trial.spec.network.seed
    if is_paired:
        return text
    return f"{text}, of heads {_numbers(sorted(heads))}"


def _numbers(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if 0 < last - first == len(numbers) - 1:
        return f"{first}-{last}"
    return ", ".join(map(str, numbers))


def lacking(work: RemainingWork, store: Store) -> Iterator[str]:
    """Yield the artifacts that jobs will write to a store, e.g. ``networks/<id>``."""
    specs = {job.network_id: job.first.spec for job in work.networks}
    for network_id, spec in sorted(specs.items()):
        if not has_network(spec, store):
            yield f"networks/{network_id}"
    # Imported data are a bank already, and post-hoc trials need no bank in a read-only store.
    banks = set[str]()
    for job in work.head_batches:
        if job.kind == "head" and job.first.spec.data.imported is None:
            banks.add(bank_key(job.first.spec, job.first.spec.head).identity)
    for bank in sorted(banks):
        if part := lacking_of_bank(bank, store, work.is_search):
            yield part


def lacking_of_bank(bank: str, store: Store, is_search: bool) -> str:
    """Return what the training of heads will write of a feature bank; "" if it is complete."""
    artifact = f"banks/{bank}"
    if not store.holds("banks", bank):
        return artifact
    try:
        manifest = read_manifest(store.folder("banks", bank))
        if not manifest["train_views"]:
            return f"train of {artifact}"
        has_test = is_search or manifest["has_test"]  # a search needs no test split
    except (OSError, KeyError, DamagedFileError):
        return artifact  # damaged: it is written again
    return "" if has_test else f"test of {artifact}"


def find_extra_jobs(
    sets: Sequence[str], bootstrap: int, planned: Sequence[PlannedTrial], out: AnyPath
) -> list[ExtraJob]:
    """Find the extra evaluations that finished trials lack, with shift sets by name."""
    if not sets and not bootstrap:
        return []
    names = {"spec_hash", "status", *_TEST_COLUMNS}
    finished: dict[str, Measured] = {}
    for row in read_table(out, "trials", columns=names).to_pylist():
        if row["status"] == "done" and row.get(_TEST_COLUMNS[0]) is not None:
            finished[row["spec_hash"]] = {name: row[name] for name in _TEST_COLUMNS}
    trials = [(t, finished[t.spec.hash]) for t in planned if t.spec.hash in finished]
    jobs: list[ExtraJob] = []
    if sets:
        table = read_table(out, "shifts", columns=["spec_hash", "set", "resamples"])
        is_drawn = pc.greater_equal(pc.fill_null(table["resamples"], 0), bootstrap)
        pairs = table.filter(is_drawn).group_by(["spec_hash", "set"]).aggregate([]).to_pylist()
        # A set may consist of parts, such as the severities of a corruption.
        evaluated = {(row["spec_hash"], "/".join(row["set"].split("/")[:2])) for row in pairs}
        for name in sets:
            missing = [pair for pair in trials if (pair[0].spec.hash, name) not in evaluated]
            jobs += group_extra_jobs(missing, name, bootstrap)
    if bootstrap:
        table = read_table(out, "intervals", columns=["spec_hash", "resamples"])
        drawn = table.filter(pc.equal(table["resamples"], bootstrap))["spec_hash"]
        hashes = set(drawn.to_pylist())
        missing = [pair for pair in trials if pair[0].spec.hash not in hashes]
        jobs += group_extra_jobs(missing, None, bootstrap)
    # By network, since consecutive jobs of a Ray actor share an open network.
    return sorted(jobs, key=lambda job: job.network_id)


def group_extra_jobs(
    trials: Iterable[tuple[PlannedTrial, Measured]], shift: str | None, resamples: int = 0
) -> list[ExtraJob]:
    """Group trials that are evaluated on the same features into jobs."""
    groups: dict[str, list[tuple[PlannedTrial, Measured]]] = {}
    for trial in trials:
        groups.setdefault(shifted_bank_key(trial[0].spec).identity, []).append(trial)
    name = shift or f"bootstrap/{resamples}"
    jobs = []
    for group in groups.values():
        for start in range(0, len(group), TOGETHER):
            members, measured = zip(*group[start : start + TOGETHER], strict=True)
            hashes = "".join(trial.spec.hash for trial in members)
            # The name of its file depends only on the specs.
            digest = hash_text(hashes)[:16]
            job = ExtraJob(
                f"{name.replace('/', '-')}-{digest}",
                members,
                title=f"{name}: {format_rungs(members)}",
                measured=measured,
                shift=shift,
                resamples=resamples,
            )
            jobs.append(job)
    return jobs
