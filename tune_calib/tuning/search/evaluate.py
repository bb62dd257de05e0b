"""The one look at the test split: the choice of a search, over seeds that it never saw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from analysis.search import tables
from analysis.tables.render import body
from tune_calib.console import Prose, Text
from tune_calib.engine.store import Store
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import AnyPath
from tune_calib.results.folders import find_sweep_manifest
from tune_calib.results.manifests import VERSION, ReadRecord, SearchEvaluated
from tune_calib.results.selection import (
    BASELINE,
    CHOSEN,
    DEFAULTS,
    EVALUATION,
    OPTIMISM,
    describe_no_gain_on_test,
    describe_reads,
)
from tune_calib.results.tables import atomic_write, read_table
from tune_calib.spec.ladder import Ladder, Rung
from tune_calib.spec.metrics import column
from tune_calib.spec.names import SEARCH_EVALUATED, legend
from tune_calib.spec.resolved import Seeds
from tune_calib.tuning.ablate import LadderJob, ablate
from tune_calib.tuning.copies import Copies
from tune_calib.tuning.extra import ExtraEvaluations
from tune_calib.tuning.folder import only_driver
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.search.driver import open_ledger
from tune_calib.tuning.search.job import SearchJob, job_of
from tune_calib.tuning.search.ledger import Ledger
from tune_calib.tuning.search.objective import Row


@dataclass(frozen=True)
class Evaluated:
    """The result of the evaluation on test.

    Attributes:
        folder: of its results, a sweep like any other.
        metrics: that were searched for.
        reads: of the test split, in their order.
        on_select: rows of the search by rung label: what it believed.
        crashed: one line for each Ray trial that crashed.
    """

    folder: AnyPath
    metrics: tuple[str, ...]
    reads: Sequence[ReadRecord]
    on_select: Mapping[str, Sequence[Row]]
    crashed: list[str]


def evaluate_choice(
    out: AnyPath,
    seeds: int,
    study_storage: str | None,
    command: str,
    extend: bool = False,
    look: ExtraEvaluations | None = None,
    begin: Callable[[LadderJob], None] = lambda job: None,
) -> Evaluated:
    """Evaluate the chosen trial of a search on test, beside the baseline and the defaults.

    Args:
        out: folder of the search.
        seeds: how many fresh seeds of networks and heads, which vary together.
        study_storage: URL of the study, where that is a database.
        command: to do the same again.
        extend: read test once more, under more seeds than before.
        look: what its trials are looked at beside.
        begin: says what is about to be done.
    """
    job, read = job_of(out, study_storage), ReadRecord(seeds=seeds, command=command)
    with only_driver(out), show_driver(out):
        ledger = open_ledger(job, job.question.candidates())
        data = ledger.candidates.baseline()[0].spec.data
        # What the search believed stands next to what is evaluated now.
        Copies.read([data], job.site.data_root, Store(job.site.store)).refuse_other(out, [])
        choice = _choice(ledger)
        reads = _record(out, choice, read, extend)
        crashed = ablate(_job(job, choice, reads, command, look), begin)
    return Evaluated(
        folder=out / EVALUATION,
        metrics=job.question.objective.metrics,
        reads=reads,
        on_select=_believed(ledger, {DEFAULTS: 0, CHOSEN: choice.trial}),
        crashed=crashed,
    )


def planned_evaluation(
    out: AnyPath,
    seeds: int,
    study_storage: str | None,
    command: str,
    extend: bool = False,
    look: ExtraEvaluations | None = None,
) -> LadderJob:
    """Build the ladder that ``evaluate_choice`` would run, and write nothing."""
    job, read = job_of(out, study_storage), ReadRecord(seeds=seeds, command=command)
    choice = _choice(open_ledger(job, job.question.candidates(), is_read_only=True))
    return _job(job, choice, _with_read(out, choice, read, extend).reads, command, look)


def _choice(ledger: Ledger) -> SearchEvaluated:
    """Find the trial of a search that the rule chooses."""
    ledger.judge_all()
    if not ledger.standings:
        raise UserError(
            f"{ledger.out}: its study knows of no suggestion; first: tune-calib resume {ledger.out}"
        )
    number = ledger.objective.chosen(ledger.standings)
    if number is None:
        raise UserError(f"{ledger.out}: no trial keeps the accuracy; raise `guard` in a new search")
    return SearchEvaluated(
        version=VERSION,
        trial=number,
        settings=dict(ledger.study.suggestion(number).point),
        rule=ledger.objective.rule(),
    )


def _record(
    out: AnyPath, choice: SearchEvaluated, look: ReadRecord, extend: bool
) -> list[ReadRecord]:
    """Write down that test is read, before it is; gives every look at it, in their order."""
    record = _with_read(out, choice, look, extend)
    record.write(out)
    return record.reads


def _with_read(
    out: AnyPath, choice: SearchEvaluated, look: ReadRecord, extend: bool
) -> SearchEvaluated:
    """Add a test read to the record of all of them.

    The same look may be repeated, e.g. after a kill. Another choice comes too late.
    """
    try:
        old = SearchEvaluated.read(out) if (out / SEARCH_EVALUATED).exists() else choice
    except DamagedFileError as error:
        raise DamagedFileError(
            f"{error}, so that nobody knows which trial was evaluated on test; its numbers stay: "
            f"tune-calib report {out / EVALUATION}"
        ) from None
    if (old.trial, old.settings, old.rule) != (choice.trial, choice.settings, choice.rule):
        raise UserError(
            f"{out} was evaluated on test with trial {old.trial}, and the choice is now "
            f"trial {choice.trial}; test is read once: search in a new `out`"
        )
    reads = old.reads or _reads_before(out)
    last = reads[-1].seeds if reads else look.seeds
    if look.seeds < last or (look.seeds > last and not extend):
        raise UserError(
            f"{out}: {describe_reads(reads)}, and it is read once; the same again: `seeds` {last}; "
            "with `extend` more seeds are added, and the page says that test was read again"
        )
    if not reads or look.seeds > last:
        reads = [*reads, look]
    return choice.model_copy(update={"reads": reads}).over(old)


def _reads_before(out: AnyPath) -> list[ReadRecord]:
    """Restore the test read of an earlier version, which wrote no seeds, from its results."""
    manifest = find_sweep_manifest(out / EVALUATION)
    if manifest is None:
        return []
    return [ReadRecord(seeds=len(manifest.network_seeds), command=manifest.command)]


def _job(
    job: SearchJob,
    choice: SearchEvaluated,
    reads: Sequence[ReadRecord],
    command: str,
    look: ExtraEvaluations | None,
) -> LadderJob:
    """Build the ladder of baseline, defaults and choice with seeds that the search did not use."""
    question, candidates = job.question, job.question.candidates()
    own = question.asked.seeds
    first = 1 + max([*own.network, *own.head])
    fresh = tuple(range(first, first + reads[-1].seeds))
    rungs: list[Rung] = []
    known = {candidates.baseline()[0].spec.hash}
    for label, each in ((CHOSEN, choice.settings), (DEFAULTS, candidates.first()[0])):
        spec_hash = candidates.trials(each, 0)[0].spec.hash
        if spec_hash not in known:  # the defaults of ce are the baseline
            known.add(spec_hash)
            rungs.insert(0, candidates.rung(each, label))
    rungs.insert(0, Rung(BASELINE, "cross entropy", kind="base"))
    return LadderJob(
        Ladder(
            f"search {question.method}",
            f"Search of {question.method}; {describe_reads(reads)}",
            tuple(rungs),
        ),
        replace(question.asked, seeds=Seeds(fresh, fresh, is_paired=True)),
        replace(job.site, out=job.out / EVALUATION, command=command),
        look or ExtraEvaluations(),
    )


def _believed(ledger: Ledger, numbers: Mapping[str, int]) -> dict[str, list[Row]]:
    believed = {BASELINE: [ledger.rows[t.spec.hash] for t in ledger.candidates.baseline()]}
    for label, number in numbers.items():
        hashes = ledger.hashes(ledger.study.suggestion(number))
        believed[label] = [ledger.rows[spec_hash] for spec_hash in hashes]
    return believed


def optimism(evaluated: Evaluated) -> Text:
    """Compare the metrics of the search on ``select`` and on ``test`` in a table."""
    rows = read_table(evaluated.folder, "trials").to_pylist()
    table = tables.optimism(rows, evaluated.on_select, evaluated.metrics)
    flags = legend(row.get("flags") for row in rows)
    notes = [OPTIMISM, f"{describe_reads(evaluated.reads)}.", *_no_gain(evaluated, rows), *flags]
    text = "\n".join([body(table), "", *notes])
    atomic_write(evaluated.folder / "tables" / "optimism.md", f"{text}\n".encode())
    return Text([table, "", *map(Prose, notes)])


def _no_gain(evaluated: Evaluated, rows: Sequence[Row]) -> list[str]:
    """Return a line for each metric in which the choice is no better than the baseline on test."""
    means = []
    for label in (BASELINE, CHOSEN):
        own = [row for row in rows if row["rung_label"] == label and row["status"] == "done"]
        if not own:
            return []
        means.append({m: fmean(row[column("test", m)] for row in own) for m in evaluated.metrics})
    return describe_no_gain_on_test(evaluated.metrics, *means)
