"""One search, end to end: baseline, suggestions, trials on ``select``, the choice, the counts."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from tune_calib.console import echo
from tune_calib.engine.machine import environment_of
from tune_calib.engine.population import HEAD_THREADS
from tune_calib.engine.store import Store
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, require_writable
from tune_calib.results.plugin_folders import require_loaded, store_sources
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.names import IN_PROCESS, SEARCH_MANIFEST, WATCHED
from tune_calib.spec.resolved import refuse_large
from tune_calib.tuning.copies import Copies
from tune_calib.tuning.folder import done, only_driver, refuse_mended
from tune_calib.tuning.loggers.follow import followed
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.ray.execution import execute, open_executor
from tune_calib.tuning.ray.executor import Executor, Resources, refuse_here
from tune_calib.tuning.ray.plan import MAX_POPULATION, lacking, make_plan
from tune_calib.tuning.ray.progress import show_phase
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.search.candidates import Candidates
from tune_calib.tuning.search.heads import search_heads
from tune_calib.tuning.search.job import SearchJob, command_of_choice, job_of
from tune_calib.tuning.search.ledger import Ledger
from tune_calib.tuning.search.manifest import as_begun, refuse_other_specs, search_manifest
from tune_calib.tuning.search.networks import search_networks
from tune_calib.tuning.search.outcome import write_outcome
from tune_calib.tuning.search.storage import lost_database, open_storage
from tune_calib.tuning.search.study import SearchStudy, points_of

MIN_SHARE = 8


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        ledger: of the search.
        counts: of what was planned and done, in one line.
        crashed: what trials of this session died of.
        command: that trains the choice again, with the settings that were fixed; empty where
            nothing is chosen, or no command does it.
    """

    ledger: Ledger
    counts: str
    crashed: list[str]
    command: str = ""


def search(
    job: SearchJob,
    retry: str | None = None,
    begin: Callable[[SearchJob], None] = lambda job: None,
) -> Found:
    """Do what is left of a search.

    Args:
        job: the search.
        retry: status of trials that are tried once more, e.g. ``crashed``.
        begin: says what is about to be done, where something is.

    Raises:
        UserError: a setting is wrong, the data is not there, ``out`` holds something else, or
            its choice was evaluated on test already.
        MismatchError: trials, rows and study disagree at the end.
    """
    require_loaded(job.out)
    job = as_begun(job)
    question = job.question
    refuse_asked(job)
    candidates = question.candidates()
    candidates.refuse_empty()
    data = candidates.baseline()[0].spec.data
    # What can be refused by reading alone is refused before the folder is made.
    DATASETS[data.dataset].locate(job.site.data_root)
    search_manifest(job)
    first = [*candidates.baseline(), *candidates.trials({}, 0)]
    networks = [trial.spec.network for trial in first]
    everywhere = environment_of(trial.spec for trial in first)
    kinds = {(each, n.precision) for n in networks for each in (HEAD_THREADS, n.threads)}
    needs = [Resources(cores, job.site.gpus, precision) for cores, precision in sorted(kinds)]
    if not (job.out / SEARCH_MANIFEST).exists():  # one that is over needs nothing
        refuse_here(job.site.address, needs, everywhere)
    with only_driver(job.out), show_driver(job.out), lost_database(job.study_storage):
        # Once more: another driver may have made the search longer meanwhile.
        manifest = search_manifest(job)
        asked = manifest.trials
        store = Store(job.site.store)
        copies = Copies.read([data], job.site.data_root, store)
        rows = done(job.out)
        copies.refuse_other(job.out, [t for t in first if t.spec.hash not in rows])
        lacks = lacking(make_plan(first, set()), store, is_search=True)
        if lacks or candidates.kind == "network":
            require_writable(job.site.store, lacks[0] if lacks else "the networks of the search")
        ledger = open_ledger(job, candidates)
        # Behind what refuses: a search that cannot go on keeps the manifest that it has.
        manifest.write(job.out)
        store_sources(job.out, job.plugins())
        if retry is not None:
            ledger.study.retry(retry)
        planned = ledger.study.planned(asked)
        ledger.read()
        with followed(job.out, manifest.search):
            if ledger.study.finished() < planned:
                refuse_here(job.site.address, needs, everywhere)
                begin(job)
                with open_executor(job.site, needs, everywhere) as executor:
                    _run(job, ledger, planned, executor, manifest.search, copies)
                planned = ledger.study.planned(asked)  # fewer where the space was at its end
            else:
                echo(f"nothing is left to do in {job.out}", err=True)
                ledger.judge_all()
        counts = ledger.reconcile(planned)
        if planned < asked:
            counts += f"; {asked} were asked for, and there are no more points"
        command = command_of_choice(job, choice) if (choice := ledger.choice()) else ""
        write_outcome(ledger, asked, planned, command)
    return Found(ledger, counts, list(ledger.crashed.values()), command)


def write_outcome_so_far(out: AnyPath, study_storage: str | None) -> None:
    """Write ``outcome.json`` of a search that was interrupted, runs, or is of an older version.

    Its driver may be at work: nothing else of the folder is touched, the study least of all.
    """
    job = job_of(out, study_storage)
    if not done(out):
        raise UserError(f"{out}: no result yet; go on: tune-calib resume {out}")
    with lost_database(job.study_storage):
        ledger = open_ledger(job, job.question.candidates(), is_read_only=True)
        ledger.read()
        _ = ledger.baseline  # one that failed is refused here
        ledger.judge_ended()
        command = command_of_choice(job, choice) if (choice := ledger.choice()) else ""
        write_outcome(ledger, job.suggestions, ledger.study.planned(job.suggestions), command)


def open_ledger(job: SearchJob, candidates: Candidates, is_read_only: bool = False) -> Ledger:
    """Open the state of a search: its folder and its study."""
    refuse_other_specs(job.out, candidates)
    if not is_read_only:
        refuse_mended(job.out)
    study = open_study(job, candidates, is_read_only)
    return Ledger(job.out, candidates, job.question.objective, study)


def open_study(job: SearchJob, candidates: Candidates, is_read_only: bool) -> SearchStudy:
    """Open the study of a search."""
    question = job.question
    return SearchStudy(
        open_storage(job.study_storage, job.out, is_read_only),
        f"tune-calib {question.identity}",
        candidates.space,
        question.objective,
        question.sampler,
        question.sampler_seed,
        points_of(candidates.space, question.sampler, candidates.first()),
        is_read_only,
    )


def study_so_far(out: AnyPath, study_storage: str | None) -> SearchStudy | None:
    """Open the study of the search in a folder for reading; None if it holds no search."""
    if not (out / SEARCH_MANIFEST).exists():
        return None
    job = job_of(out, study_storage)
    return open_study(job, job.question.candidates(), is_read_only=True)


def _run(
    job: SearchJob, ledger: Ledger, planned: int, executor: Executor, identity: str, copies: Copies
) -> None:
    question, baseline, gpus = job.question, ledger.candidates.baseline(), job.site.gpus
    name, used = f"search {question.method}", job.plugins()
    provenance = job.site.provenance(
        identity,
        name,
        question.asked.recipe_label,
        used,
        is_search=True,
        digests=copies.digests,
    )
    plan = make_plan(baseline, set(ledger.rows))
    execute("baseline", plan, executor, provenance, gpus)
    ledger.read()
    _ = ledger.baseline  # refused here, before anything is asked
    left = (planned - ledger.study.finished()) * len(question.asked.seeds.pairs())
    kinds = {f"{'head' if ledger.candidates.kind == 'head' else 'network'}s": left}
    with show_phase(name, planned, "suggestions", kinds, executor, provenance.channel):
        _carry_out(job, ledger, planned, executor, provenance)


def _carry_out(
    job: SearchJob, ledger: Ledger, planned: int, executor: Executor, provenance: Provenance
) -> None:
    question, gpus = job.question, job.site.gpus
    if ledger.candidates.kind == "head":
        pool = executor.pool(job.at_once, Resources(HEAD_THREADS, gpus), provenance)
        heads = question.population * len(question.asked.seeds.pairs())
        # Few enough for every actor to get a share of a batch, where that leaves populations
        # that are worth it; the numbers of a head do not depend on its population.
        largest = min(MAX_POPULATION, max(MIN_SHARE, ceil(heads / job.at_once)))
        search_heads(ledger, pool, planned, question.population, question.lag, largest)
    else:
        is_asha = question.scheduler == "asha"
        search_networks(ledger, planned, executor, provenance, gpus, job.at_once, is_asha)


def refuse_asked(job: SearchJob) -> None:
    """Refuse numbers and a scheduler that make no search."""
    question = job.question
    Resources(1, job.site.gpus)
    for name, count in (
        ("trials", job.suggestions),
        ("population", question.population),
        ("at_once", job.at_once),
    ):
        if count < 1:
            raise UserError(f"`{name}` must be at least 1, got {count}")
    if not job.site.uses_ray:
        _refuse_in_process(job)
    refuse_large(job.suggestions * len(question.asked.seeds.pairs()))
    if question.scheduler == "asha":
        if question.candidates().kind != "network":
            raise UserError(f"`scheduler` asha stops networks; {question.method} trains none")
        if len(question.objective.metrics) > 1 or question.objective.metrics[0] not in WATCHED:
            raise UserError(f"`scheduler` asha needs one `metric` of {', '.join(WATCHED)}")


def _refuse_in_process(job: SearchJob) -> None:
    where = f"`address` {IN_PROCESS}"
    if job.at_once > 1:
        raise UserError(
            f"`at_once` {job.at_once} needs Ray: with {where} one trial runs after the other"
        )
    if job.question.scheduler == "asha":
        raise UserError(f"`scheduler` asha needs Ray, which stops the networks: leave {where} out")
