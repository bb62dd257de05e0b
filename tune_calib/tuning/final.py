"""The one look at the test split: the choice of a search, over seeds that it never saw."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tabulate import tabulate

from ablations._ladder import Ladder, Rung, Seeds
from search_spaces._space import Point
from tune_calib.errors import UserError
from tune_calib.names import METRICS, column
from tune_calib.places import Place
from tune_calib.results import atomic_write, read_table
from tune_calib.tuning.ablate import Request, ablate
from tune_calib.tuning.candidates import BASELINE, Candidates
from tune_calib.tuning.folder import only_driver, read_manifest
from tune_calib.tuning.objective import Row
from tune_calib.tuning.request import EVALUATED, SearchRequest, request_of
from tune_calib.tuning.search import open_trials
from tune_calib.tuning.trials import SearchTrials

EVALUATION = "evaluation"
DEFAULTS, CHOSEN = "defaults", "chosen"


@dataclass(frozen=True)
class Evaluated:
    """What the look at the test split gave.

    Attributes:
        folder: of its results, a sweep like any other.
        metrics: that were searched for, and accuracy.
        on_select: rows of the search by rung label: what it believed.
        crashed: one line for each Ray trial that crashed.
    """

    folder: Place
    metrics: tuple[str, ...]
    on_select: Mapping[str, Sequence[Row]]
    crashed: list[str]


def evaluate(out: Place, seeds: int, study_storage: str | None, command: str) -> Evaluated:
    """Evaluate the chosen trial of a search on test, beside the baseline and the defaults.

    Args:
        out: folder of the search.
        seeds: how many fresh seeds of networks and heads, which vary together.
        study_storage: URL of the study, where that is a database.
        command: to do the same again.

    Raises:
        UserError: the search is not over, found nothing within the guard, or had its look at
            the test split with another choice.
    """
    request = request_of(out, study_storage)
    question, candidates = request.question, request.question.candidates()
    with only_driver(out):
        trials = open_trials(request, candidates)
        trials.judge_all()
        number = question.objective.chosen(trials.verdicts)
        if number is None:
            raise UserError(f"{out}: no trial keeps the accuracy; raise --guard in a new search")
        point = trials.study.suggestion(number).point
        _record(out, {"trial": number, "settings": dict(point), "rule": question.objective.rule()})
        crashed = ablate(_request(request, candidates, point, seeds, command))
    return Evaluated(
        folder=out / EVALUATION,
        metrics=tuple(dict.fromkeys([*question.objective.metrics, "accuracy"])),
        on_select=_believed(trials, {DEFAULTS: 0, CHOSEN: number}),
        crashed=crashed,
    )


def _record(out: Place, choice: dict[str, Any]) -> None:
    """Write down that test is read, before it is; another choice comes too late."""
    path = out / EVALUATED
    if path.exists():
        old = read_manifest(path)
        if old != choice:
            raise UserError(
                f"{out} was evaluated on test with trial {old.get('trial')}, and the choice is now "
                f"trial {choice['trial']}; test is read once: search in a new --out"
            )
    atomic_write(path, json.dumps(choice, indent=1).encode())


def _request(
    request: SearchRequest, candidates: Candidates, point: Point, seeds: int, command: str
) -> Request:
    question = request.question
    first = 1 + max([*question.seeds.network, *question.seeds.head])
    fresh = tuple(range(first, first + seeds))
    rungs: list[Rung] = []
    known = {candidates.baseline()[0].spec.hash}
    for label, each in ((CHOSEN, point), (DEFAULTS, candidates.first()[0])):
        spec_hash = candidates.trials(each, 0)[0].spec.hash
        if spec_hash not in known:  # the defaults of ce are the baseline
            known.add(spec_hash)
            rungs.insert(0, candidates.rung(each, label))
    rungs.insert(0, Rung(BASELINE, "cross entropy", kind="base"))
    return Request(
        ladder=Ladder(f"search {question.method}", f"Search of {question.method}", tuple(rungs)),
        defaults=question.defaults,
        given=question.given,
        seeds=Seeds(fresh, fresh, is_paired=True),
        with_controls=False,
        out=request.out / EVALUATION,
        store=request.store,
        data_root=request.data_root,
        address=request.address,
        gpus=request.gpus,
        command=command,
    )


def _believed(trials: SearchTrials, numbers: Mapping[str, int]) -> dict[str, list[Row]]:
    believed = {BASELINE: [trials.rows[t.spec.hash] for t in trials.candidates.baseline()]}
    for label, number in numbers.items():
        hashes = trials.hashes(trials.study.suggestion(number))
        believed[label] = [trials.rows[spec_hash] for spec_hash in hashes]
    return believed


def optimism(evaluated: Evaluated) -> str:
    """How much better the search looked on ``select`` than it is on ``test``, as a table."""
    rows = read_table(evaluated.folder, "trials").to_pylist()
    lines = []
    for label, believed in evaluated.on_select.items():
        fresh = [row for row in rows if row["rung_label"] == label and row["status"] == "done"]
        before = [row for row in believed if row["status"] == "done"]
        for name in evaluated.metrics if fresh and before else ():
            searched = fmean(row[column("select", name)] for row in before)
            test = [row[column("test", name)] for row in fresh]
            select = fmean(row[column("select", name)] for row in fresh)
            sign = 1 if METRICS[name].direction == "min" else -1
            gap = sign * (fmean(test) - searched)
            title = METRICS[name].title
            lines.append([label, title, searched, select, _spread(test), gap])
    titles = ["", "metric", "select, searched", "select, fresh", "test, fresh", "optimism"]
    table = tabulate(lines, headers=titles, floatfmt=".4f", tablefmt="github")
    atomic_write(evaluated.folder / "tables" / "optimism.md", f"{table}\n".encode())
    return f"{table}\noptimism: how much worse test is than what the search saw on select"


def _spread(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    return f"{fmean(values):.4f}{spread}"
