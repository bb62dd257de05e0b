"""What a search optimises and how, apart from its length and its location."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property

from tune_calib.results.manifests import SearchRequestRecord
from tune_calib.spec import plugins
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.request import SamplerName, SchedulerName
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.settings import restore_recipe
from tune_calib.tuning.folder import hash_request
from tune_calib.tuning.search.candidates import Candidates
from tune_calib.tuning.search.objective import Objective


@dataclass(frozen=True)
class SearchDefinition:
    """What a search optimises and how; another definition is another search.

    Attributes:
        method: whose space is searched.
        resolved: settings that are not searched, and seeds over which metrics are averaged.
        scheduler: ``asha`` stops networks that are behind.
        population: suggestions of a batch (head methods).
        lag: batches that are suggested before the first of them has ended (head methods): with 1
            nothing is trained meanwhile; more than 2 keep no actor busier and tell the sampler
            less. Searches of earlier versions with one Ray trial at a time have 1, and keep it.
    """

    method: str
    resolved: ResolvedRequest
    objective: Objective
    sampler: SamplerName = "tpe"
    sampler_seed: int = 0
    scheduler: SchedulerName = "none"
    population: int = 8
    lag: int = 2

    @cached_property
    def record(self) -> SearchRequestRecord:
        """Build the record for ``search.json``."""
        plain = {
            "method": self.method,
            **self.resolved.identity(),
            "seeds": asdict(self.resolved.seeds),
            "objective": asdict(self.objective),
            "sampler": self.sampler,
            "sampler_seed": self.sampler_seed,
            "scheduler": self.scheduler,
            "population": self.population,
            "lag": self.lag,
            # Two versions of a plug-in are two searches, also for a study in one database.
            **({"plugins": sorted(needs)} if (needs := self.plugins) else {}),
        }
        # Through JSON: the file has lists where Python has tuples, and must equal what is read.
        return SearchRequestRecord(**json.loads(json.dumps(plain)))

    @cached_property
    def identity(self) -> str:
        """Return the hash of the definition, which is in each row of the search."""
        return hash_request(self.record.plain())

    @cached_property
    def candidates(self) -> Candidates:
        """Build the candidates of the search."""
        return Candidates(self.method, self.resolved)

    @property
    def plugins(self) -> set[str]:
        """Return the content hashes of the plug-ins that it rests on."""
        if not plugins.in_use():
            return set()
        metrics = {METRICS.origin(name) for name in self.objective.metrics}
        return self.candidates.plugins() | {each for each in metrics if each is not None}

    @classmethod
    def from_record(cls, record: SearchRequestRecord) -> "SearchDefinition":
        """Restore a definition from its record.

        Raises:
            KeyError: an earlier version did not write its settings.
            TypeError: a later version wrote what this one does not know.
        """
        plain, seeds = record.plain(), record.seeds
        given = plain.pop("given")
        resolved = ResolvedRequest(
            overrides=given,
            seeds=Seeds(tuple(seeds.network), tuple(seeds.head), seeds.is_paired),
            recipe=restore_recipe(given, plain.pop("defaults"), plain.pop("recipe", None)),
            own_recipes=plain.pop("own_recipes", False),
        )
        objective = Objective(tuple(record.objective.metrics), record.objective.guard)
        del plain["seeds"]
        plain.pop("plugins", None)  # those that are in use now are recorded again
        return cls(**{**plain, "resolved": resolved, "objective": objective})
