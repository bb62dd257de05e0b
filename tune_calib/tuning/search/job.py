"""What a search asks, and where and how long: the job that a driver carries out."""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tune_calib.engine.imports import find_names
from tune_calib.engine.store import Store
from tune_calib.paths import AnyPath, parse_path
from tune_calib.results.folders import foreign_search, read_search_manifest
from tune_calib.results.manifests import QuestionRecord
from tune_calib.results.plugin_folders import require_loaded
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.recipe import QUICK, Recipe
from tune_calib.spec.request import SamplerName, SchedulerName
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.settings import find_recipe, restore_recipe
from tune_calib.spec.space import Point
from tune_calib.text import format_yaml, option_words
from tune_calib.tuning.folder import hash_request
from tune_calib.tuning.search.candidates import Candidates
from tune_calib.tuning.search.objective import Objective
from tune_calib.tuning.search.storage import known_storage
from tune_calib.tuning.site import Site


@dataclass(frozen=True)
class Question:
    """What a search optimises and how; another definition is another search.

    Attributes:
        method: whose space is searched.
        asked: settings, which are not searched, and the seeds under which every suggestion is
            tried; the metrics are averaged over them.
        objective: what is searched for.
        sampler: how.
        sampler_seed: seed of the sampler.
        scheduler: ``asha`` stops networks that are behind.
        population: suggestions that are asked for together (head methods).
        lag: batches that are asked for before the first of them is told (head methods): with 1
            nothing is trained meanwhile; more than 2 keep no actor busier and tell less. Searches
            of earlier versions with one Ray trial at a time have 1, and keep it.
    """

    method: str
    asked: ResolvedRequest
    objective: Objective
    sampler: SamplerName = "tpe"
    sampler_seed: int = 0
    scheduler: SchedulerName = "none"
    population: int = 8
    lag: int = 2

    def record(self) -> QuestionRecord:
        """Return the record for ``search.json``."""
        asked = self.asked
        plain = {
            "method": self.method,
            **asked.identity(),
            "seeds": asdict(asked.seeds),
            "objective": asdict(self.objective),
            "sampler": self.sampler,
            "sampler_seed": self.sampler_seed,
            "scheduler": self.scheduler,
            "population": self.population,
            "lag": self.lag,
            # Two versions of a plug-in are two questions, also for a study in one database.
            **({"plugins": sorted(needs)} if (needs := self.plugins()) else {}),
        }
        # Through JSON: the file has lists where Python has tuples, and must equal what is read.
        return QuestionRecord(**json.loads(json.dumps(plain)))

    def plugins(self) -> set[str]:
        """Content hashes of the plug-ins that it rests on."""
        if not plugins.in_use():
            return set()
        metrics = {METRICS.origin(name) for name in self.objective.metrics}
        return self.candidates().plugins() | {each for each in metrics if each is not None}

    @property
    def identity(self) -> str:
        """Return the hash of the definition, which is in each row of the search."""
        return hash_request(self.record().plain())

    @classmethod
    def of(cls, record: QuestionRecord) -> "Question":
        """Take back what ``record`` gave.

        Raises:
            KeyError: an earlier program did not tell its settings.
            TypeError: a later program asked what this one does not know.
        """
        plain, seeds = record.plain(), record.seeds
        given = plain.pop("given")
        asked = ResolvedRequest(
            overrides=given,
            seeds=Seeds(tuple(seeds.network), tuple(seeds.head), seeds.is_paired),
            recipe=restore_recipe(given, plain.pop("defaults"), plain.pop("recipe", None)),
            own_recipes=plain.pop("own_recipes", False),
        )
        objective = Objective(tuple(record.objective.metrics), record.objective.guard)
        del plain["seeds"]
        plain.pop("plugins", None)  # said again by those that are in use now
        return cls(**{**plain, "asked": asked, "objective": objective})

    def candidates(self) -> Candidates:
        """Build the candidates of the search."""
        return Candidates(self.method, self.asked)


@dataclass(frozen=True)
class SearchJob:
    """A search in a run folder.

    Attributes:
        question: what it asks.
        suggestions: how many.
        site: where.
        at_once: Ray trials side by side.
        study_storage: URL of the study's database, or None for a journal file in its folder.
    """

    question: Question
    suggestions: int
    site: Site
    at_once: int = 1
    study_storage: str | None = None

    @property
    def out(self) -> AnyPath:
        """Folder of the search."""
        return self.site.out

    def plugins(self) -> tuple[Plugin, ...]:
        """List the plug-ins that its trials need."""
        return plugins.used(self.question.plugins())


def command_of_choice(job: SearchJob, point: Point) -> str:
    """Return the command that trains the method of a search with the settings of a point.

    It names every setting that was fixed too. Empty where no command does it: the recipe is
    another one by now than when the search began.
    """
    question, asked, site = job.question, job.question.asked, job.site
    recipe, store = asked.recipe, Store(site.store)
    settings = {**asked.fixed, **point}
    name = _named_recipe(asked, settings.get("network.backbone"))
    if _text_of(find_recipe(asked.overrides, name)) != _text_of(recipe):
        return ""
    options: list[tuple[str, Any]] = []
    record = asked.overrides.get("data", {}).get("imported")
    if record is not None:
        known = find_names(record["digest"], store)
        options += [("imported", known[0])] if known else []
        settings |= {} if known else {"data.imported": record}
    else:
        options.append(("dataset", asked.overrides.get("data", {}).get("dataset", "digits")))
    options += [("recipe", name)] if name else []
    options += [("set", f"{key}={format_yaml(value)}") for key, value in settings.items()]
    seeds = asked.seeds
    if seeds.is_paired:
        options.append(("seeds", len(seeds.network)))
    else:
        counts = {"network-seeds": len(seeds.network), "head-seeds": len(seeds.head)}
        options += [(key, count) for key, count in counts.items() if count > 1]
    where = {"data-root": site.data_root, "store": site.store, "address": site.address}
    options += [(key, value) for key, value in where.items() if value is not None]
    options += [("gpus", site.gpus)] if site.gpus else []
    options += [("own-recipes", True)] if asked.own_recipes else []
    words = [*option_words(options), *plugins.as_options()]
    return shlex.join(["tune-calib", "compare", question.method, *words])


def _named_recipe(asked: ResolvedRequest, backbone: str | None) -> str | None:
    """Return the name of the recipe for the option; None if it is the default."""
    recipe = asked.recipe
    if recipe is None or recipe.name != QUICK:
        return None if recipe is None else recipe.name
    quick = DATASETS[recipe.datasets[0]].quick
    is_own = quick is None or not quick.backbones or backbone in (None, *quick.backbones)
    return None if is_own or asked.is_frozen else QUICK


def _text_of(recipe: Recipe | None) -> str:
    """Format a recipe to compare it; one read from a file has lists in place of tuples."""
    return json.dumps([recipe.settings, recipe.plain()] if recipe else None, sort_keys=True)


def job_of(out: AnyPath, study_storage: str | None) -> SearchJob:
    """Load the search of a folder."""
    require_loaded(out)
    manifest = read_search_manifest(out)
    if not manifest.can_go_on:
        raise foreign_search(out, manifest)
    try:
        question = Question.of(manifest.question)
    except (KeyError, TypeError):
        raise foreign_search(out, manifest) from None
    return SearchJob(
        question=question,
        suggestions=manifest.trials,
        site=Site(
            out=out,
            store=parse_path(manifest.store) if manifest.store else out / "store",
            data_root=Path(manifest.data_root) if manifest.data_root else None,
            address=manifest.address,
            gpus=manifest.gpus,
            command=manifest.command,
        ),
        at_once=manifest.at_once,
        study_storage=known_storage(out, study_storage, manifest.study_storage),
    )
