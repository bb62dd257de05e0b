"""One search, end to end: baseline, suggestions, trials on ``select``, the choice, the counts."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ablations._ladder import Seeds, Settings
from tune_calib.data.splits import load_development
from tune_calib.errors import UserError
from tune_calib.results import atomic_write
from tune_calib.tuning.candidates import Candidates
from tune_calib.tuning.folder import (
    holds_another,
    identity_of,
    only_driver,
    read_manifest,
    refuse_foreign,
)
from tune_calib.tuning.launch import ALL_EPOCHS, HEAD_THREADS, Resources, ray_session, run_wave
from tune_calib.tuning.objective import Objective
from tune_calib.tuning.plan import make_plan
from tune_calib.tuning.pool import Pool
from tune_calib.tuning.record import Run
from tune_calib.tuning.search_heads import search_heads
from tune_calib.tuning.search_networks import WATCHED, search_networks
from tune_calib.tuning.storage import open_storage
from tune_calib.tuning.study import SamplerName, SearchStudy, points_of
from tune_calib.tuning.trainables import HeadTrainable, NetworkTrainable
from tune_calib.tuning.trials import SearchTrials

MANIFEST = "search.json"
EVALUATED = "evaluated.json"


@dataclass(frozen=True)
class Question:
    """What a search asks; another question is another search.

    Attributes:
        method: whose space is searched.
        defaults: settings by slot that suit the data set.
        given: settings by slot that were asked for; they are not searched.
        seeds: under which every suggestion is tried; the metrics are averaged.
        objective: what is searched for.
        sampler: how.
        sampler_seed: seed of the sampler.
        scheduler: ``asha`` stops networks that are behind.
        population: suggestions that are asked for together (head methods).
        at_once: Ray trials side by side.
    """

    method: str
    defaults: Settings
    given: Settings
    seeds: Seeds
    objective: Objective
    sampler: SamplerName = "tpe"
    sampler_seed: int = 0
    scheduler: Literal["none", "asha"] = "none"
    population: int = 16
    at_once: int = 1

    def plain(self) -> dict[str, Any]:
        """As plain JSON values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Question":
        """Take back what ``plain`` gave."""
        seeds, objective = plain["seeds"], plain["objective"]
        pairs = {**seeds, "network": tuple(seeds["network"]), "head": tuple(seeds["head"])}
        metrics = tuple(objective["metrics"])
        return cls(
            **{
                **plain,
                "seeds": Seeds(**pairs),
                "objective": Objective(metrics, objective["guard"]),
            }
        )

    def candidates(self) -> Candidates:
        """What is tried."""
        return Candidates(self.method, self.given, self.defaults, self.seeds)


@dataclass(frozen=True)
class SearchRequest:
    """A search as the command line gives it.

    Attributes:
        question: what it asks.
        trials: number of suggestions.
        out: folder of the results.
        store: folder of the artifacts.
        data_root: where data sets lie.
        address: of a Ray cluster, or None for this machine.
        gpus: GPUs of a Ray trial, 0, 1 or 1/k.
        study_storage: URL of the study's database, or None for a journal file in ``out``.
        command: to do the same again.
        cpus: cores of a network trial; the machine's are shared out unless given.
    """

    question: Question
    trials: int
    out: Path
    store: Path
    data_root: Path | None
    address: str | None
    gpus: float
    study_storage: str | None
    command: str
    cpus: int | None = None


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        trials: the search.
        counts: of what was planned and done, in one line.
        crashed: what trials of this session died of.
    """

    trials: SearchTrials
    counts: str
    crashed: list[str]


def search(request: SearchRequest, retry: str | None = None) -> Found:
    """Do what is left of a search.

    Args:
        request: the search.
        retry: status of trials that are tried once more, e.g. ``crashed``.

    Raises:
        UserError: a setting is wrong, the data is not there, ``out`` holds something else, or
            its choice was evaluated on test already.
        MismatchError: trials, rows and study disagree at the end.
    """
    question = request.question
    _refuse(question, request)
    candidates = question.candidates()
    manifest = _manifest_of(request)
    load_development(
        candidates.baseline()[0].spec.data, request.data_root, request.store / "images"
    )
    atomic_write(request.out / MANIFEST, json.dumps(manifest, indent=1).encode())
    with only_driver(request.out):
        trials = open_trials(request, candidates)
        planned = _planned(request, manifest["trials"], trials, retry)
        trials.read()
        with ray_session(request.address):
            _run(request, trials, planned, manifest["search"])
        counts = trials.reconcile(planned)
    return Found(trials, counts, list(trials.crashed.values()))


def open_trials(request: SearchRequest, candidates: Candidates) -> SearchTrials:
    """The search as its folder and its study hold it."""
    question = request.question
    study = SearchStudy(
        open_storage(request.study_storage, request.out),
        f"tune-calib {identity_of(question.plain())}",
        candidates.space,
        question.objective,
        question.sampler,
        question.sampler_seed,
        points_of(candidates.space, question.sampler, candidates.first()),
    )
    return SearchTrials(request.out, candidates, question.objective, study)


def _planned(request: SearchRequest, asked: int, trials: SearchTrials, retry: str | None) -> int:
    """Number of suggestions, with those that are tried again."""
    question = request.question
    if question.sampler == "grid":
        points = points_of(trials.candidates.space, "grid", trials.candidates.first())
        asked = min(asked, len(points))
    if retry is not None:
        trials.study.retry(retry)
    return asked + len(trials.study.retried())


def _run(request: SearchRequest, trials: SearchTrials, planned: int, identity: str) -> None:
    question, cpus = request.question, os.cpu_count() or 1
    run = Run(
        out=str(request.out.resolve()),
        store=str(request.store.resolve()),
        data_root=str(request.data_root.resolve()) if request.data_root else None,
        sweep=identity,
        ladder=f"search {question.method}",
        device="cuda" if request.gpus else "cpu",
        is_search=True,
        threads=request.cpus or max(1, cpus // question.at_once),
    )
    resources = Resources(run.threads, request.gpus)
    baseline = make_plan(trials.candidates.baseline(), set(trials.rows)).networks
    run_wave("baseline", NetworkTrainable, baseline, run, resources)
    trials.read()
    _ = trials.baseline
    if trials.candidates.kind == "head":
        run, resources = replace(run, threads=HEAD_THREADS), Resources(HEAD_THREADS, request.gpus)
        pool = Pool(
            HeadTrainable, question.at_once, resources, run, {"epochs_per_step": ALL_EPOCHS}
        )
        lag = question.at_once + 1 if question.at_once > 1 else 1
        search_heads(trials, pool, planned, question.population, lag)
        pool.close()
    else:
        is_asha = question.scheduler == "asha"
        search_networks(trials, planned, run, resources, question.at_once, is_asha)


def _refuse(question: Question, request: SearchRequest) -> None:
    for option, count in (
        ("--trials", request.trials),
        ("--population", question.population),
        ("--at-once", question.at_once),
    ):
        if count < 1:
            raise UserError(f"{option} must be at least 1, got {count}")
    if question.scheduler == "asha":
        if question.candidates().kind != "network":
            raise UserError(f"--scheduler asha stops networks; {question.method} trains none")
        if len(question.objective.metrics) > 1 or question.objective.metrics[0] not in WATCHED:
            raise UserError(f"--scheduler asha needs one --metric of {', '.join(WATCHED)}")


def _manifest_of(request: SearchRequest) -> dict[str, Any]:
    """What the folder says of the search; trials may be added, the question must be the same."""
    question, out = request.question.plain(), request.out
    manifest: dict[str, Any] = {
        "version": 1,
        "search": identity_of(question),
        "question": question,
        "rule": request.question.objective.rule(),
        "trials": request.trials,
        "command": request.command,
        "store": None if request.store == out / "store" else str(request.store.resolve()),
        "data_root": str(request.data_root.resolve()) if request.data_root else None,
        "address": request.address,
        "gpus": request.gpus,
        "cpus": request.cpus,
    }
    if not (out / MANIFEST).exists():
        refuse_foreign(out)
        return manifest
    old = read_manifest(out / MANIFEST)
    if old["search"] != manifest["search"]:
        raise holds_another(out, "search", old)
    if (out / EVALUATED).exists():
        raise UserError(f"{out} was evaluated on test: its search is over; name another --out")
    return {**manifest, "trials": max(old["trials"], request.trials)}


def request_of(out: Path, study_storage: str | None) -> SearchRequest:
    """The search that a folder holds.

    Args:
        out: its folder.
        study_storage: URL of its study, where that is a database.

    Raises:
        UserError: it holds none.
    """
    if not (out / MANIFEST).exists():
        raise UserError(f"{out} holds no {MANIFEST}; name the --out folder of a search")
    manifest = read_manifest(out / MANIFEST)
    return SearchRequest(
        question=Question.from_plain(manifest["question"]),
        trials=manifest["trials"],
        out=out,
        store=Path(manifest["store"]) if manifest["store"] else out / "store",
        data_root=Path(manifest["data_root"]) if manifest["data_root"] else None,
        address=manifest["address"],
        gpus=manifest["gpus"],
        study_storage=study_storage,
        command=manifest["command"],
        cpus=manifest.get("cpus"),
    )
