"""The test read of a search: its choice on the test split, over seeds that it never saw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from analysis.search import tables
from analysis.tables.render import body
from tune_calib.console import Prose, Text
from tune_calib.engine.store import Store
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import AnyPath, atomic_write
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
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import Ladder, Rung
from tune_calib.spec.metrics import column
from tune_calib.spec.names import SEARCH_EVALUATED, legend
from tune_calib.spec.resolved import Seeds
from tune_calib.tuning.extra import ExtraEvaluations
from tune_calib.tuning.folder import only_driver
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.reuse import Copies
from tune_calib.tuning.run import execute_run
from tune_calib.tuning.search.objective import Row
from tune_calib.tuning.search.run import SearchRun, load_search, open_state
from tune_calib.tuning.search.state import SearchState


@dataclass(frozen=True)
class Evaluation:
    """The result of the evaluation on test, whose rows lie in a run folder like any other."""

    folder: AnyPath
    metrics: tuple[str, ...]
    reads: Sequence[ReadRecord]
    on_select: Mapping[str, Sequence[Row]]  # rows of the search by rung label
    crashed: list[str]  # a line for each Ray trial


def evaluate_choice(
    out: AnyPath,
    seeds: int,
    study_storage: str | None,
    command: str,
    extend: bool = False,
    extra: ExtraEvaluations | None = None,
    begin: Callable[[LadderRun], None] = lambda run: None,
) -> Evaluation:
    """Evaluate the chosen trial of a search on test, beside the baseline and the defaults.

    Fresh seeds of networks and heads vary together; ``extend`` reads test once more, under more
    seeds than before.
    """
    search = load_search(out, study_storage)
    with only_driver(out), show_driver(out):
        state = open_state(search)
        data = state.candidates.baseline()[0].spec.data
        # The rows of the search stand next to what is evaluated now.
        store = Store(search.location.store)
        Copies.read([data], search.location.data_root, store).refuse_other(out, [])
        choice = add_read(
            out, _find_choice(state), ReadRecord(seeds=seeds, command=command), extend
        )
        # Before it is read.
        choice.write(out)
        crashed = execute_run(build_run(search, choice, command, extra), begin)
    baseline = [state.rows[trial.spec.hash] for trial in state.candidates.baseline()]
    on_select = {BASELINE: baseline}
    for label, number in {DEFAULTS: 0, CHOSEN: choice.trial}.items():
        hashes = state.hashes(state.study.suggestion(number))
        on_select[label] = [state.rows[spec_hash] for spec_hash in hashes]
    metrics = search.definition.objective.metrics
    return Evaluation(out / EVALUATION, metrics, choice.reads, on_select, crashed)


def plan_evaluation(
    out: AnyPath,
    seeds: int,
    study_storage: str | None,
    command: str,
    extend: bool = False,
    extra: ExtraEvaluations | None = None,
) -> LadderRun:
    """Build the ladder that ``evaluate_choice`` would run, and write nothing."""
    search = load_search(out, study_storage)
    choice = _find_choice(open_state(search, is_read_only=True))
    choice = add_read(out, choice, ReadRecord(seeds=seeds, command=command), extend)
    return build_run(search, choice, command, extra)


def _find_choice(state: SearchState) -> SearchEvaluated:
    """Find the trial of a search that the rule chooses."""
    state.settle_all()
    if not state.results:
        raise UserError(
            f"{state.out}: its study knows of no suggestion; first: tune-calib resume {state.out}"
        )
    number = state.objective.choose(state.results)
    if number is None:
        raise UserError(f"{state.out}: no trial keeps the accuracy; raise `guard` in a new search")
    return SearchEvaluated(
        version=VERSION,
        trial=number,
        settings=dict(state.study.suggestion(number).point),
        rule=state.objective.describe_rule(),
    )


def add_read(
    out: AnyPath, choice: SearchEvaluated, read: ReadRecord, extend: bool
) -> SearchEvaluated:
    """Add a test read to the record of all of them.

    The same read may be repeated, e.g. after a kill. Another choice comes too late.
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
    reads = old.reads
    # An earlier version wrote no seeds; its results tell them.
    if not reads and (manifest := find_sweep_manifest(out / EVALUATION)) is not None:
        reads = [ReadRecord(seeds=len(manifest.network_seeds), command=manifest.command)]
    last = reads[-1].seeds if reads else read.seeds
    if read.seeds < last or (read.seeds > last and not extend):
        raise UserError(
            f"{out}: {describe_reads(reads)}, and it is read once; the same again: `seeds` {last}; "
            "with `extend` more seeds are added, and the page says that test was read again"
        )
    if not reads or read.seeds > last:
        reads = [*reads, read]
    return choice.model_copy(update={"reads": reads}).over(old)


def build_run(
    search: SearchRun, choice: SearchEvaluated, command: str, extra: ExtraEvaluations | None
) -> LadderRun:
    """Build the ladder of baseline, defaults and choice with seeds that the search did not use."""
    resolved, candidates = search.resolved, search.definition.candidates
    first = 1 + max([*resolved.seeds.network, *resolved.seeds.head])
    fresh = tuple(range(first, first + choice.reads[-1].seeds))
    rungs: list[Rung] = []
    known = {candidates.baseline()[0].spec.hash}
    for label, each in ((CHOSEN, choice.settings), (DEFAULTS, candidates.first()[0])):
        spec_hash = candidates.trials(each, 0)[0].spec.hash
        if spec_hash not in known:  # the defaults of ce are the baseline
            known.add(spec_hash)
            rungs.insert(0, candidates.rung(each, label))
    rungs.insert(0, Rung(BASELINE, "cross entropy", kind="base"))
    title = f"Search of {candidates.method}; {describe_reads(choice.reads)}"
    return LadderRun(
        Ladder(f"search {candidates.method}", title, tuple(rungs)),
        replace(resolved, seeds=Seeds(fresh, fresh, is_paired=True)),
        replace(search.location, out=search.out / EVALUATION, command=command),
        extra or ExtraEvaluations(),
    )


def compare_splits(evaluation: Evaluation) -> Text:
    """Compare the metrics of the search on ``select`` and on ``test`` in a table."""
    rows = read_table(evaluation.folder, "trials").to_pylist()
    table = tables.optimism(rows, evaluation.on_select, evaluation.metrics)
    flags = legend(row.get("flags") for row in rows)
    reads = f"{describe_reads(evaluation.reads)}."
    notes = [OPTIMISM, reads, *_list_losses(evaluation.metrics, rows), *flags]
    text = "\n".join([body(table), "", *notes])
    atomic_write(evaluation.folder / "tables" / "optimism.md", f"{text}\n".encode())
    return Text([table, "", *map(Prose, notes)])


def _list_losses(metrics: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return a line for each metric in which the choice is no better than the baseline on test."""
    means = []
    for label in (BASELINE, CHOSEN):
        own = [row for row in rows if row["rung_label"] == label and row["status"] == "done"]
        if not own:
            return []
        means.append({m: fmean(row[column("test", m)] for row in own) for m in metrics})
    return describe_no_gain_on_test(metrics, *means)
