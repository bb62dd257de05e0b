"""What is left to do of planned runs, and the time and disk space that it takes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.head_batch import HEAD_THREADS
from tune_calib.engine.machine import MOST_CHUNKS, count_cores
from tune_calib.engine.store import Store
from tune_calib.errors import DataNotFoundError
from tune_calib.experiments.forecast.rates import Rate, Rates
from tune_calib.paths import AnyPath
from tune_calib.spec.gpus import Gpu
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import RunLocation, done, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.reuse import find_rows
from tune_calib.tuning.run import AnyRun
from tune_calib.tuning.search.execute import find_largest
from tune_calib.tuning.search.run import SearchRun, count_suggestions
from tune_calib.tuning.work.executor import find_cluster
from tune_calib.tuning.work.jobs import find_extra_jobs, lacking_of_bank, make_plan

NETWORKS, HEADS, SEARCHES = "networks", "heads", "searches with a budget in hours"


@dataclass(frozen=True)
class Needs:
    """Remaining work of one ladder or search."""

    run: AnyRun
    planned: int | None  # trials, or suggestions of a search; None with a budget in hours
    done: int  # number of finished ones
    trials: Sequence[PlannedTrial]  # all; for a search, those of the baseline and of one suggestion
    networks: dict[str, TrialSpec]  # needed, by id; for a search, those of the baseline
    searched: list[TrialSpec] = field(default_factory=list)  # networks that suggestions train
    head_batches: list[tuple[TrialSpec, int]] = field(default_factory=list)  # one, and their number
    evaluations: int | None = 0  # extra ones; None if files of shift sets are missing
    hours: float = 0.0  # left of a budget in hours

    @property
    def heads(self) -> int:
        """Return the number of heads that are left to train."""
        return sum(count for _, count in self.head_batches)

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to do."""
        return self.planned == self.done and not self.evaluations

    @property
    def threads(self) -> int:
        """Return the number of threads of a network."""
        return max(trial.spec.network.threads for trial in self.trials)

    @property
    def machine(self) -> Mapping[str, int]:
        """Return the ``CPU`` cores and ``GPU``s of a cluster that responds, or of this machine."""
        local = {"CPU": count_cores(), "GPU": torch.cuda.device_count()}
        return find_cluster(self.run.location.address) or local

    @property
    def cores(self) -> int:
        """Return the CPU cores that a pass of a network over images uses."""
        location, cores = self.run.location, self.machine["CPU"]
        spec = self.trials[0].spec  # all are frozen, or none
        is_trained = location.uses_ray and not spec.network.is_frozen
        if location.gpus or spec.data.imported is not None or is_trained:
            return self.threads
        if location.uses_ray:
            cores //= max(1, len(self.networks))
        return max(self.threads, min(cores, MOST_CHUNKS))

    def count_parallel(self, cores: int) -> int:
        """Count the trials that run in parallel, each on a number of cores."""
        location, machine = self.run.location, self.machine
        if not location.uses_ray:
            return 1
        most = machine["CPU"] // cores
        if location.gpus:
            most = min(most, int(machine.get("GPU", 0) / location.gpus))
        if isinstance(self.run, SearchRun):
            most = min(most, self.run.at_once)
        return max(1, most)


def find_needs(run: AnyRun, hours: float | None = None) -> Needs:
    """Find the needs of what remains; ``hours`` is the budget of a search that has one in hours."""
    if isinstance(run, SearchRun):
        return _find_needs_of_search(run, hours)
    assert isinstance(run, LadderRun)
    planned, out = run.planned_trials, run.location.out
    reused = find_rows(planned, out, run.location.among)
    finished = done(out).union(reused)
    unfinished = [trial for trial in planned if trial.spec.hash not in finished]
    batches = []
    for job in make_plan(unfinished, set()).head_batches:
        # A head that post-hoc methods share is trained once.
        heads = {trial.spec.head for trial in job.trials}
        if job.kind == "head":
            batches.append((job.first.spec, len(heads)))
    return Needs(
        run=run,
        planned=len(planned),
        done=len(planned) - len(unfinished),
        trials=planned,
        networks={trial.spec.network_id: trial.spec for trial in unfinished},
        head_batches=batches,
        evaluations=_count_evaluations(run, len(unfinished), reused),
    )


def _count_evaluations(run: LadderRun, unfinished: int, reused: dict[str, AnyPath]) -> int | None:
    """Count the extra evaluations of unfinished trials, and those that finished trials lack."""
    try:
        sets, draws, out = run.shift_sets, run.options.bootstrap, run.location.out
    except DataNotFoundError:  # a forecast for a GPU of another machine needs no files
        return None
    count = unfinished * (len(sets) + bool(draws))
    for folder in {out, *reused.values()}:
        trials = [t for t in run.planned_trials if reused.get(t.spec.hash, out) == folder]
        for job in find_extra_jobs(sets, draws, trials, out=folder):
            count += len(job.trials)
    return count


def _find_needs_of_search(run: SearchRun, hours: float | None) -> Needs:
    definition, candidates = run.definition, run.definition.candidates
    counts = count_suggestions(run.out, run.location.study_storage, run.length)
    ended, planned = counts or (0, run.length)
    if counts is None:
        size = candidates.space.size
        if definition.sampler == "grid":
            size = len(definition.points)
        planned = int(min(planned, size))
    # The defaults represent all suggestions.
    suggestion, baseline = candidates.trials(candidates.first()[0], 0), candidates.baseline()
    trials, rows = [*baseline, *suggestion], done(run.out)
    networks = {t.spec.network_id: t.spec for t in baseline if t.spec.hash not in rows}
    if hours is not None:
        hours_left = max(0.0, hours - spent_s(run.out) / run.at_once / 3600)
        return Needs(run, None, ended, trials=trials, networks=networks, hours=hours_left)
    left = [*suggestion] * max(0, planned - ended)
    searched, batches = [], []
    if candidates.kind == "network":
        searched = [trial.spec for trial in left]
    largest = find_largest(definition, run.at_once)
    for job in make_plan(left, set(), largest).head_batches:
        batches.append((job.first.spec, len(job.trials)))
    return Needs(
        run, planned, ended, trials=trials, networks=networks, searched=searched,
        head_batches=batches,
    )  # fmt: skip


class Forecast:
    """Totals over ladders and searches, on this machine or a GPU that it need not have."""

    def __init__(self, location: RunLocation, gpu: Gpu | None = None) -> None:
        self.gpu, self.store = gpu, Store(location.store)
        self.networks: set[str] = set()  # ids of those to train, each once
        self.in_store: set[str] = set()
        self.banks: set[str] = set()  # identities of those to build
        self.seconds: dict[str, float] = {}  # counting parallel trials once; NaN if unknown
        self.sources: dict[str, str] = {}  # a line on the origin of each rate
        self._rates: dict[str, Rates] = {}  # by device
        for name in ("cpu", "cuda"):
            device = torch.device("cuda" if gpu else name)
            rates = Rates(location.out, self.store, location.data_root, device=device, gpu=gpu)
            self._rates[name] = rates

    def rates(self, needs: Needs) -> Rates:
        """Return the rates on the device of a run."""
        if needs.run.location.gpus:
            return self._rates["cuda"]
        return self._rates["cpu"]

    def add(self, needs: Needs) -> int:
        """Add the work of a ladder or search, and return the number of networks it trains."""
        specs = list(needs.searched)
        for network_id, spec in needs.networks.items():
            if has_network(spec, self.store):
                self.in_store.add(network_id)
            elif network_id not in self.networks:
                self.networks.add(network_id)
                specs.append(spec)
        network_s = [self._add_network(spec, needs) for spec in specs]
        self._add_seconds(NETWORKS, network_s, needs, cores=needs.cores)
        heads_s = [self._add_heads(*batch, needs) for batch in needs.head_batches]
        self._add_seconds(HEADS, heads_s, needs, cores=HEAD_THREADS)
        if needs.hours:
            self.seconds[SEARCHES] = self.seconds.get(SEARCHES, 0.0) + 3600 * needs.hours
        return sum(not spec.network.is_frozen for spec in specs)

    def _add_seconds(
        self, activity: str, seconds: Sequence[float], needs: Needs, cores: int
    ) -> None:
        if not seconds:
            return
        parallel = 1.0  # on a named GPU, which trains one after the other
        if self.gpu is None:
            # Trials that share a GPU take turns on it.
            parallel = max(1.0, needs.count_parallel(cores) * (needs.run.location.gpus or 1.0))
        # Parallel training takes at least as long as the longest one. A first NaN stays in max.
        longest = max(sum(seconds) / parallel, *seconds)
        self.seconds[activity] = self.seconds.get(activity, 0.0) + longest

    def _time_pass(self, spec: TrialSpec, images: int, needs: Needs) -> float:
        """Return the seconds in which a network computes the outputs of some images."""
        seconds = images * self.rates(needs).image_s(spec)
        if self.gpu is None:
            seconds /= max(1, needs.cores // spec.network.threads)  # chunks at once
        return seconds

    def _add_network(self, spec: TrialSpec, needs: Needs) -> float:
        rates = self.rates(needs)
        sizes = rates.sizes(spec.data)
        # A finished network is evaluated on each image once, and its clean bank is built of it.
        images = sizes.train + sizes.select + sizes.calib + sizes.test
        seconds = self._time_pass(spec, images, needs)
        if not spec.network.is_frozen:
            rate = rates.network(spec)
            self._note(f"{spec.network.backbone} on {spec.data.dataset}", rate)
            seconds += rate.seconds * spec.network.epochs
        return seconds

    def _add_heads(self, spec: TrialSpec, count: int, needs: Needs) -> float:
        assert spec.head is not None
        rates = self.rates(needs)
        rate = rates.heads(spec, count)
        self._note(f"heads of {spec.head.method} on {spec.data.dataset}", rate)
        seconds = rate.seconds * spec.head.epochs
        key, is_search = bank_key(spec, spec.head), needs.run.is_search
        is_built = not lacking_of_bank(key.identity, self.store, is_search)
        if spec.data.imported is not None or is_built or key.identity in self.banks:
            return seconds
        self.banks.add(key.identity)
        sizes = rates.sizes(spec.data)
        images = max(1, key.views) * sizes.train + sizes.select + sizes.calib
        if not is_search:
            images += sizes.test
        is_clean = key == bank_key(spec, None) and spec.network.threads == HEAD_THREADS
        if is_clean and spec.network_id in self.networks:
            return seconds
        return seconds + self._time_pass(spec, images, needs)

    def _note(self, subject: str, rate: Rate) -> None:
        source = rate.source
        if not math.isnan(rate.seconds):
            source = f"{rate.seconds:.3g} s an epoch, {source}"
        self.sources.setdefault(subject, f"  {subject}: {source}")
