"""What a search asks, and the manifest by which its folder remembers it."""

import contextlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.folders import identity_of_rows, search_of
from tune_calib.ladder import Seeds
from tune_calib.manifests import (
    VERSION,
    CommandRecord,
    QuestionRecord,
    SearchManifest,
    SearchOutcome,
    SeedsRecord,
)
from tune_calib.names import SEARCH_EVALUATED, SEARCH_MANIFEST
from tune_calib.places import Place, place
from tune_calib.recipes import Settings
from tune_calib.results import read_table
from tune_calib.tuning.caption import titles
from tune_calib.tuning.folder import holds_another, identity_of, refuse_foreign
from tune_calib.tuning.search.candidates import NO_RUNG, Candidates
from tune_calib.tuning.search.objective import Objective
from tune_calib.tuning.search.storage import JOURNAL, STARS, without_password
from tune_calib.tuning.search.study import SamplerName


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
            nothing is trained meanwhile; more than 2 keep no actor busier and tell less. Searches
            of earlier versions with one Ray trial at a time have 1, and keep it.
        own_recipes: train each method by the recipe of its authors.
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
    own_recipes: bool = False

    def record(self) -> QuestionRecord:
        """As a file holds it; ``own_recipes`` only where asked for, as before there was any."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not self.own_recipes:
            del plain["own_recipes"]
        return QuestionRecord(**plain)

    @property
    def identity(self) -> str:
        """What tells this search from every other, the same in each of its rows."""
        return identity_of(self.record().plain())

    @classmethod
    def of(cls, record: QuestionRecord) -> "Question":
        """Take back what ``record`` gave.

        Raises:
            TypeError: a later program asked what this one does not know.
        """
        seeds, objective = record.seeds, record.objective
        return cls(
            **{
                **record.plain(),
                "seeds": Seeds(tuple(seeds.network), tuple(seeds.head), seeds.is_paired),
                "objective": Objective(tuple(objective.metrics), objective.guard),
            }
        )

    def candidates(self) -> Candidates:
        """What is tried."""
        return Candidates(self.method, self.given, self.defaults, self.seeds, self.own_recipes)


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


def as_begun(request: SearchRequest) -> SearchRequest:
    """The request with the lag of the search that its folder holds.

    Nobody asks for a lag; earlier versions took it from the machine.
    """
    old = begun(request.out)
    if old is not None:
        return _with_lag(request, old.question.lag)
    # The manifest may be lost; the rows keep the identity of the whole question.
    before = identity_of_rows(request.out)
    slow = _with_lag(request, 1)
    return slow if slow.question.identity == before else request


def _with_lag(request: SearchRequest, lag: int) -> SearchRequest:
    return replace(request, question=replace(request.question, lag=lag))


def manifest_of(request: SearchRequest) -> SearchManifest:
    """What the folder says of the search; trials may be added, the question must be the same.

    Raises:
        UserError: the folder holds another search, or something else.
    """
    old = begun(request.out)
    new = _new_manifest(request)
    if old is None:
        return new.model_copy(update={"trials": _restored(request, new.search)})
    _refuse_other(old, new, request.out)
    further = {
        "command": old.command,
        "commands": _commands(old, new),
        "trials": max(old.trials, new.trials),
    }
    return new.model_copy(update=further).over(old)


def _new_manifest(request: SearchRequest) -> SearchManifest:
    question, out = request.question, request.out
    candidates = question.candidates()
    return SearchManifest(
        version=VERSION,
        search=question.identity,
        question=question.record(),
        rule=question.objective.rule(),
        trials=request.trials,
        command=request.command,
        commands=[CommandRecord(command=request.command, trials=request.trials)],
        specs=specs_of(candidates),
        store=None if request.store == out / "store" else str(request.store.resolve()),
        data_root=str(request.data_root.resolve()) if request.data_root else None,
        address=request.address,
        gpus=request.gpus,
        at_once=request.at_once,
        study_storage=request.study_storage and without_password(request.study_storage),
        titles=titles(candidates.baseline()),
    )


def _refuse_other(old: SearchManifest, new: SearchManifest, out: Place) -> None:
    """Refuse to go on with another search than the one that a folder holds.

    Raises:
        UserError: it holds another one, whose study lies elsewhere, or that is over.
    """
    if old.search != new.search:
        raise holds_another(out, "search", old.command, _difference(old.question, new.question))
    if old.study_storage != new.study_storage:
        raise UserError(
            f"the study of {out} lies in {old.study_storage or 'its journal file'}: name the "
            "same --study-storage"
        )
    if (out / SEARCH_EVALUATED).exists():
        raise UserError(f"{out} was evaluated on test: its search is over; name another --out")


def _difference(old: QuestionRecord, new: QuestionRecord) -> str:
    """In what two questions differ, for an error."""
    before, now = old.plain(), new.plain()
    keys = [key for key in now if before.get(key) != now[key]]
    text = f", which differs in {', '.join(keys)}"
    if keys == ["seeds"]:
        text += (
            f": its suggestions have {_count(old.seeds)}, and {_count(new.seeds)} are asked "
            "for now (seeds of a sweep file and of its entries count for searches too; those below "
            "search stand above them)"
        )
    return text


def _count(seeds: SeedsRecord) -> str:
    networks, heads = len(seeds.network), len(seeds.head)
    text = f"{networks}" if seeds.is_paired else f"{networks} x {heads}"
    return f"{text} seed" + "s" * (text != "1")


def _commands(old: SearchManifest, new: SearchManifest) -> list[CommandRecord]:
    """The commands that made a search as long as it is, in their order."""
    commands = old.commands or [CommandRecord(command=old.command, trials=old.trials)]
    if new.trials <= old.trials:
        return commands
    is_same = commands[-1].command == new.command  # a sweep file or a budget that grew
    now = CommandRecord(command=new.command, trials=new.trials)
    return [*(commands[:-1] if is_same else commands), now]


def specs_of(candidates: Candidates) -> dict[str, list[str]]:
    """Spec hashes of the baseline and of the method's defaults: they tell versions apart."""
    # The point of suggestion 0, so that rows of earlier versions compare.
    point = next(iter(candidates.first()), {})
    trials = {"baseline": candidates.baseline(), "defaults": candidates.trials(point, 0)}
    return {name: [trial.spec.hash for trial in own] for name, own in trials.items()}


def refuse_other_specs(out: Place, candidates: Candidates) -> None:
    """Refuse to go on with a search whose trials would be others now.

    Raises:
        UserError: a version with other defaults began it.
    """
    old = begun(out)
    before = (old and old.specs) or _specs_of_rows(out)
    now = specs_of(candidates)
    for name, text in (("baseline", "the baseline"), ("defaults", f"{candidates.method} itself")):
        if not set(before[name]) <= set(now[name]):
            raise UserError(
                f"{out}: the version that began this search gave {text} other settings than this "
                "one, and their trials cannot be mixed: go on with that version, or search in a "
                "new --out"
            )


def _specs_of_rows(out: Place) -> dict[str, list[str]]:
    """As ``specs_of``, of a search whose manifest does not tell: what was run."""
    rows = read_table(out, "trials").select(["rung", "spec_hash"]).to_pylist()
    rungs = {"baseline": NO_RUNG, "defaults": 0}
    return {n: [r["spec_hash"] for r in rows if r["rung"] == rung] for n, rung in rungs.items()}


def begun(out: Place) -> SearchManifest | None:
    """The manifest of the search that a folder holds; None if there is none, or it is lost.

    Raises:
        UserError: a later version wrote it.
    """
    with contextlib.suppress(DamagedFileError, FileNotFoundError):
        return SearchManifest.read(out)
    return None


def _restored(request: SearchRequest, identity: str) -> int:
    """Suggestions of a search that begins, or that lost its manifest and has rows.

    Raises:
        UserError: the folder holds something else.
    """
    out = request.out
    before = identity_of_rows(out)
    if before is None:
        refuse_foreign(out, SEARCH_MANIFEST, JOURNAL)
        return request.trials
    if before != identity:
        raise holds_another(out, "search", f"its {SEARCH_MANIFEST} is lost")
    asked = 0
    with contextlib.suppress(DamagedFileError, FileNotFoundError):
        asked = SearchOutcome.read(out).asked
    if (out / SEARCH_EVALUATED).exists() and request.trials > asked:
        raise UserError(f"{out} was evaluated on test: to restore it, ask for --trials {asked}")
    return max(asked, request.trials)


def request_of(out: Place, study_storage: str | None) -> SearchRequest:
    """The search that a folder holds.

    Args:
        out: its folder.
        study_storage: URL of its study, where that is a database.

    Raises:
        UserError: it holds none.
    """
    manifest = search_of(out)
    if not manifest.can_go_on:
        raise _unknown(out, manifest)
    try:
        question = Question.of(manifest.question)
    except TypeError:
        raise _unknown(out, manifest) from None
    return SearchRequest(
        question=question,
        trials=manifest.trials,
        out=out,
        store=place(manifest.store) if manifest.store else out / "store",
        data_root=Path(manifest.data_root) if manifest.data_root else None,
        address=manifest.address,
        gpus=manifest.gpus,
        at_once=manifest.at_once,
        study_storage=study_storage or _known_storage(out, manifest.study_storage),
        command=manifest.command,
    )


def _unknown(out: Place, manifest: SearchManifest) -> UserError:
    return UserError(
        f"{out / SEARCH_MANIFEST} is not such a file as this tune-calib writes; update it, or "
        f"search in a new --out ({manifest.command})"
    )


def _known_storage(out: Place, url: str | None) -> str | None:
    if url is not None and STARS in url:
        raise UserError(f"the study of {out} lies in {url}: name it with --study-storage URL")
    return url
