"""Evaluate the chosen trial of a search on the test split with fresh seeds."""

from dataclasses import replace

from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, parse_path
from tune_calib.files.store import Store
from tune_calib.results.manifests import VERSION, ReadRecord, SearchEvaluated
from tune_calib.results.selection import BASELINE, CHOSEN, DEFAULTS, EVALUATION, describe_reads
from tune_calib.spec.ladder import Ladder, Rung
from tune_calib.spec.names import SEARCH_EVALUATED
from tune_calib.spec.request import EvaluateRequest
from tune_calib.spec.resolved import Seeds
from tune_calib.spec.space import Point
from tune_calib.tuning.folder import Deadline
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.plan import Plan, build_plan
from tune_calib.tuning.reuse import Copies
from tune_calib.tuning.search.run import SearchRun, load_search, open_state
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.search.storage import lost_database


def plan_evaluation(request: EvaluateRequest, command: str) -> Plan:
    search = load_search(parse_path(request.out), request.study_storage, request.address)
    with lost_database(search.location.study_storage):
        state = open_state(search, is_read_only=True)
        read = ReadRecord(seeds=request.seeds, command=command)
        choice = add_read(find_choice(state), state.out, read, request.extend)
    # The rows of the search are compared with those of the evaluation.
    spec, store = search.planned_trials[0].spec, Store(search.location.store)
    Copies.read([spec], search.location.data_root, store).refuse_other(search.out)
    return build_plan(build_run(search, choice, request, command=command))


def find_choice(state: SearchState) -> SearchEvaluated:
    """Return the choice of a search; refuse an unfinished or replayed one, or one without."""
    if state.definition.replay:
        raise UserError(f"{state.out} was replayed: its trials were not trained")
    if not state.settle_ended():
        raise UserError(f"the search is not finished; run tune-calib resume {state.out} first")
    if not state.results:
        raise UserError(
            f"{state.out}: its study has no suggestion; run tune-calib resume {state.out} first"
        )
    number = state.objective.choose(state.results)
    if number is None:
        raise UserError(f"{state.out}: no trial keeps the accuracy; raise `guard` in a new search")
    return SearchEvaluated(
        version=VERSION,
        trial=number,
        settings=dict(state.study.suggestion(number).params),
        rule=state.objective.describe_rule(),
    )


def add_read(
    choice: SearchEvaluated, out: AnyPath, read: ReadRecord, may_extend: bool = False
) -> SearchEvaluated:
    """Add a test read to those before; refuse another choice, and more reads without `extend`."""
    old = choice
    if (out / SEARCH_EVALUATED).exists():
        old = SearchEvaluated.read(out)
    if (old.trial, old.settings) != (choice.trial, choice.settings):
        raise UserError(
            f"{out} was evaluated on test with trial {old.trial}, but the choice is now "
            f"trial {choice.trial}; test is read only once: search in a new `out`"
        )
    reads = [old_read for old_read in old.reads if bool(old_read.points) == bool(read.points)]
    last = reads[-1].seeds if reads else read.seeds
    if read.seeds < last or (read.seeds > last and not may_extend):
        extension = ", or add seeds with `extend`: the page then says that test was read again"
        raise UserError(
            f"{out}: {describe_reads(reads)}, and may be read only once; repeat that with `seeds` "
            f"{last}{'' if read.points else extension}"
        )
    reads = old.reads if reads and read.seeds == last else [*old.reads, read]
    return choice.model_copy(update={"reads": reads}).over(old)


def build_run(
    search: SearchRun, choice: SearchEvaluated, request: EvaluateRequest, command: str
) -> LadderRun:
    """Build the ladder of baseline, defaults and choice with seeds that are new to the search."""
    resolved, candidates = search.resolved, search.definition.candidates
    first = 1 + max([*resolved.seeds.network, *resolved.seeds.head])
    fresh = tuple(range(first, first + request.seeds))
    points: dict[str, Point] = {DEFAULTS: {}, CHOSEN: choice.settings}
    hashes = {label: candidates.trials(point, 0)[0].spec.hash for label, point in points.items()}
    # The choice may be the defaults, and the defaults of ce are the baseline.
    baseline_hash = candidates.baseline()[0].spec.hash
    rungs = [Rung(BASELINE, "cross entropy", kind="base")]
    if hashes[DEFAULTS] not in (baseline_hash, hashes[CHOSEN]):
        rungs.append(candidates.rung(points[DEFAULTS], DEFAULTS))
    if hashes[CHOSEN] != baseline_hash:
        rungs.append(candidates.rung(points[CHOSEN], CHOSEN))
    title = f"Search of {candidates.method}; {describe_reads(choice.reads)}"
    return LadderRun(
        Ladder(f"search {candidates.method}", title, tuple(rungs)),
        replace(resolved, seeds=Seeds(fresh, fresh, is_paired=True)),
        replace(
            search.location,
            out=search.out / EVALUATION,
            command=command,
            deadline=Deadline(request.max_hours),
        ),
        options=request,
        records=((choice, search.out),),
    )
