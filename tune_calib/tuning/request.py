"""What a search asks, and the manifest by which its folder remembers it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ablations._ladder import Seeds, Settings
from tune_calib.errors import UserError
from tune_calib.names import SEARCH_MANIFEST
from tune_calib.places import Place, place
from tune_calib.tuning.candidates import Candidates
from tune_calib.tuning.folder import (
    holds_another,
    identity_of,
    read_manifest,
    refuse_foreign,
)
from tune_calib.tuning.objective import Objective
from tune_calib.tuning.storage import STARS, without_password
from tune_calib.tuning.study import SamplerName

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
        lag: batches that are asked for before the first of them is told (head methods): with 1
            nothing is trained meanwhile; more than 2 keep no actor busier and tell less.
    """

    method: str
    defaults: Settings
    given: Settings
    seeds: Seeds
    objective: Objective
    sampler: SamplerName = "tpe"
    sampler_seed: int = 0
    scheduler: Literal["none", "asha"] = "none"
    population: int = 8
    lag: int = 2

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
        at_once: Ray trials side by side.
        study_storage: URL of the study's database, or None for a journal file in ``out``.
        command: to do the same again.
    """

    question: Question
    trials: int
    out: Place
    store: Place
    data_root: Path | None
    address: str | None
    gpus: float
    at_once: int
    study_storage: str | None
    command: str


def manifest_of(request: SearchRequest) -> dict[str, Any]:
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
        "at_once": request.at_once,
        "study_storage": request.study_storage and without_password(request.study_storage),
    }
    if not (out / SEARCH_MANIFEST).exists():
        refuse_foreign(out)
        return manifest
    old = read_manifest(out / SEARCH_MANIFEST)
    if old["search"] != manifest["search"]:
        raise holds_another(out, "search", old)
    if old["study_storage"] != manifest["study_storage"]:
        raise UserError(
            f"the study of {out} lies in {old['study_storage'] or 'its journal file'}: name the "
            "same --study-storage"
        )
    if (out / EVALUATED).exists():
        raise UserError(f"{out} was evaluated on test: its search is over; name another --out")
    return {**manifest, "trials": max(old["trials"], request.trials)}


def request_of(out: Place, study_storage: str | None) -> SearchRequest:
    """The search that a folder holds.

    Args:
        out: its folder.
        study_storage: URL of its study, where that is a database.

    Raises:
        UserError: it holds none.
    """
    if not (out / SEARCH_MANIFEST).exists():
        raise UserError(f"{out} holds no {SEARCH_MANIFEST}; name the --out folder of a search")
    manifest = read_manifest(out / SEARCH_MANIFEST)
    return SearchRequest(
        question=Question.from_plain(manifest["question"]),
        trials=manifest["trials"],
        out=out,
        store=place(manifest["store"]) if manifest["store"] else out / "store",
        data_root=Path(manifest["data_root"]) if manifest["data_root"] else None,
        address=manifest["address"],
        gpus=manifest["gpus"],
        at_once=manifest["at_once"],
        study_storage=study_storage or _known_storage(out, manifest["study_storage"]),
        command=manifest["command"],
    )


def _known_storage(out: Place, url: str | None) -> str | None:
    if url is not None and STARS in url:
        raise UserError(f"the study of {out} lies in {url}: name it with --study-storage URL")
    return url
