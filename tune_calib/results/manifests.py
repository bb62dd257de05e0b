"""The JSON files in a folder of results, and the records in them.

They are read strictly: a file of a later version asks for an update, and an incomplete or foreign
one raises a ``DamagedFileError``. The documentation lists the descriptions of the fields.
"""

import contextlib
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import seal, unseal
from tune_calib.files.paths import AnyPath, atomic_write
from tune_calib.spec.names import SEARCH_EVALUATED, SEARCH_MANIFEST, SEARCH_OUTCOME, TUNED
from tune_calib.text import mask_urls

VERSION: Literal[1] = 1
RUN_MANIFEST = "sweep.json"

Command = Annotated[str, AfterValidator(mask_urls)]
"""A command line, without the passwords in its URLs."""

Settings = dict[str, dict[str, Any]]  # by slot and key


class _Record(BaseModel):
    """A record that accepts and keeps unknown keys, which a later program may have written."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    def plain(self) -> dict[str, Any]:
        # Defaults stand for keys that an old file lacks; if written, they would look like values.
        return self.model_dump(exclude_unset=True)


class _Manifest(_Record):
    file_name: ClassVar[str]
    version: Literal[1] = Field(description="version of the format")
    # Computed whenever the file is written.
    checksum: str = Field("", exclude=True)

    @classmethod
    def read(cls, folder: AnyPath) -> Self:
        """Read the file of a folder.

        An incomplete or foreign file raises a DamagedFileError, one of a later version a UserError.
        """
        path = folder / cls.file_name
        return cast(Self, _parse(cls, path, path.read_bytes()))

    @classmethod
    def find(cls, folder: AnyPath) -> Self | None:
        """Read the file of a folder; None if it is missing or damaged, and is written again."""
        with contextlib.suppress(DamagedFileError, FileNotFoundError, NotADirectoryError):
            return cls.read(folder)
        return None

    def write(self, folder: AnyPath) -> None:
        atomic_write(folder / self.file_name, seal(self.plain()))

    def over(self, old: Self) -> Self:
        """Return this file with the unknown keys of the old file that it replaces."""
        return self.model_copy(update=old.model_extra or {})


# A command reads a manifest two or three times, which takes seconds with 200,000 planned trials.
@lru_cache(maxsize=1)
def _parse(kind: type[_Manifest], path: AnyPath, data: bytes) -> _Manifest:
    version = unseal(data, path).get("version")
    if isinstance(version, int) and version > VERSION:
        raise UserError(f"{path} has format {version} of a later tune-calib: update yours")
    try:
        return kind.model_validate_json(data)
    except ValidationError:
        raise DamagedFileError(f"{path} was not written by tune-calib") from None


class RungRecord(_Record):
    """A rung of a ladder."""

    index: int = Field(description="position in the ladder; omitted rungs leave gaps")
    label: str = Field(description="label in tables")
    ingredient: str = Field("", description="what it adds to the rung before")
    published: str | None = Field(description="its row in the published table")
    kind: Literal["base", "step", "variant", "control"] = Field(
        description="which rung it is compared with"
    )


def _omitted(description: str, default: Any = None) -> Any:
    return Field(default, exclude_if=lambda value: value == default, description=description)


# A dataclass needs a fifth of the memory of a model, and a run may have 200,000 of them.
@dataclass(frozen=True, slots=True, config=ConfigDict(strict=True))
class PlannedRecord:
    """A planned trial."""

    spec_hash: str = Field(description="hash of its trial spec")
    rung: int = Field(description="index of its rung")
    network_seed: int = Field(description="seed of its network")
    head_seed: int | None = Field(description="seed of its head; null if it trains none")
    split_seed: int | None = _omitted("seed of its draw of splits; omitted for the published draw")
    calib_size: int | None = _omitted("samples of calib in a learning curve; omitted for all")
    imported: str | None = _omitted("digest of its import; omitted unless the run has several")


class PluginRecord(_Record):
    """A plug-in that the results depend on."""

    name: str = Field(pattern=r"^[^/\\\x00-\x1f]+$", description="name of its file or module")
    content: str = Field(pattern=r"^[0-9a-z]+$", description="hash of its text and its modules")
    where: str = Field(description="path of its file, or its module")
    parts: dict[str, str] = _omitted("digests of its modules by name; may be absent", {})


class RecipeRecord(_Record):
    """The recipe of a run."""

    name: str = Field(description="name of the recipe")
    title: str = Field("", description="title of the recipe")
    source: str = Field("", description="paper or program that it was taken from")
    settings: Settings = Field({}, description="its settings on the data set, by slot")
    told: str = Field("", description="its name and the settings that replaced its own")


class FactorRecord(_Record):
    """A step of a design."""

    name: str = Field(description="its name")
    needs: list[str] = Field([], description="steps without which it cannot act")


class DesignRecord(_Record):
    """The combinations of the steps of a ladder that were planned."""

    name: str = Field(description="kind of the design")
    factors: list[FactorRecord] = Field(description="steps in the order of the ladder")
    cells: dict[str, list[list[str]]] = Field(
        description="combinations of steps by the label of their rung; equal trials share one"
    )
    posthoc: str | None = Field(None, description="method of a second rung of each combination")
    invalid: dict[str, str] = Field({}, description="reasons by combination that cannot run")


class RunManifest(_Manifest):
    """Request and planned trials of a ladder or comparison."""

    file_name = RUN_MANIFEST

    sweep: str = Field(description="identity of the request, equal in every row")
    ladder: str = Field("ladder", description="name of the ladder")
    title: str = Field(description="title of its tables")
    command: Command = Field(description="command that repeats it")
    dataset: str = Field(description="name of the data set")
    setting: str = Field(description="data, networks and heads in words")
    published: str | None = Field(description="published table to compare with")
    rungs: list[RungRecord] = Field(description="rungs in the order of the ladder, controls last")
    network_seeds: list[int] = Field(description="seeds of networks")
    head_seeds: list[int] = Field(description="seeds of heads")
    paired_seeds: bool = Field(description="whether seeds of networks and heads vary together")
    split_seeds: list[int] = _omitted("seeds of the draws of the splits", [])
    planned: list[PlannedRecord] = Field(description="all planned trials")
    titles: dict[str, str] = Field({}, description="titles of data sets and backbones by name")
    imports: dict[str, str] = _omitted("names of several imports by digest", {})
    plugins: list[PluginRecord] = _omitted("plug-ins that the results depend on", [])
    recipe: RecipeRecord | None = _omitted("recipe; null without one")
    design: DesignRecord | None = _omitted("its design; omitted for a plain ladder")

    @property
    def identity(self) -> str:
        return self.sweep

    @property
    def block(self) -> str:
        """Return the seed that matches trials: of splits, networks, or heads on one network."""
        if len(self.split_seeds) > 1:
            return "split_seed"
        if self.paired_seeds or len(self.network_seeds) > 1:
            return "network_seed"
        return "head_seed"

    @property
    def blocks(self) -> int:
        return len(getattr(self, f"{self.block}s"))

    @property
    def row_name(self) -> str:
        """Return what a row of a table is: a method of a comparison, or a rung of a ladder."""
        return "method" if self.ladder.startswith("compare ") else "rung"


class SeedsRecord(_Record):
    """Seeds under which every suggestion of a search is evaluated."""

    network: list[int] = Field(description="seeds of networks")
    head: list[int] = Field(description="seeds of heads")
    is_paired: bool = Field(
        description="whether the i-th network seed goes with the i-th head seed; else all pairs run"
    )


class ObjectiveRecord(_Record):
    """The objective of a search, on `select`."""

    metrics: list[str] = Field(description="metrics; the first one decides")
    guard: float = Field(description="accepted loss of accuracy against the baseline, a fraction")


class ReusedRecord(_Record):
    """What a search takes from an earlier one."""

    search: str = Field(description="identity of the earlier search")
    content: str = Field(description="hash of its rows, which are in `reused/CONTENT`")
    points: list[dict[str, Any]] = Field(description="its points that are tried first, in order")


class SearchRequestRecord(_Record):
    """The request of a search, which determines its identity."""

    method: str = Field(description="method whose space is searched")
    defaults: Settings = Field({}, description="settings of the recipe on the data set, by slot")
    given: Settings = Field({}, description="requested settings by slot; they are not searched")
    seeds: SeedsRecord = Field(description="seeds of each suggestion")
    objective: ObjectiveRecord = Field(description="metrics and guard")
    sampler: str = Field(description="name of the sampler")
    sampler_seed: int = Field(description="seed of the sampler")
    scheduler: str = Field("none", description="always none")
    population: int = Field(8, description="suggestions in a batch")
    lag: int = Field(2, description="number of batches requested before the first one is reported")
    own_recipes: bool = Field(False, description="whether each method has its own recipe")
    recipe: dict[str, Any] | None = Field(None, description="recipe; null for a quick one")
    plugins: list[str] = _omitted("content hashes of plug-ins", [])
    grid: dict[str, list[Any]] = _omitted("values of each setting of a grid", {})
    around: dict[str, Any] = _omitted("point whose settings vary one at a time", {})
    replay: dict[str, str] = _omitted("digest of a table and answer of a replay", {})
    reuse: list[ReusedRecord] = Field([], description="earlier searches from which it started")
    join: bool = Field(False, description="whether it consists of the suggestions of these")
    race: bool = _omitted("whether seeds end with a suggestion that is excluded", False)
    halving: int = _omitted("factor between the epochs of rungs; 0 without rungs", 0)


class CommandRecord(_Record):
    """A command of a search."""

    command: Command = Field(description="command as it was typed")
    trials: int = Field(description="requested number of suggestions")


class ReplayRecord(_Record):
    """The table that answers the trials of a search, which are not trained."""

    path: str = Field(description="path of the table")
    answer: str = Field(description="surrogate, or the nearest point of the table")
    r2: dict[str, dict[str, float]] = Field(description="cross-validated R2 of the surrogate")

    @property
    def location(self) -> dict[str, str]:
        return {"path": self.path, "answer": self.answer}

    def describe(self) -> str:
        """Describe the table and its fit, e.g. ``table.parquet (surrogate; R2 of ece 0.93)``."""
        fits = [f"{name} {fit['final']:.2f}" for name, fit in self.r2.items()]
        return f"{self.path} ({self.answer}; R2 of the surrogate: {', '.join(fits) or 'unknown'})"


class SearchManifest(_Manifest):
    """Request of a search, and what is needed to resume it."""

    file_name = SEARCH_MANIFEST

    search: str = Field("", description="identity of the request, equal in every row")
    question: SearchRequestRecord = Field(description="the request")
    rule: str = Field(description="rule of the selection, in words")
    trials: int = Field(description="requested number of suggestions")
    command: Command = Field(description="command that started it")
    commands: list[CommandRecord] = Field(description="commands that began and extended it")
    specs: dict[str, list[str]] = Field(description="spec hashes of baseline and defaults")
    store: str | None = Field(description="folder of artifacts; null is `store` in the folder")
    data_root: str | None = Field(description="folder of data sets")
    address: str | None = Field(description="Ray cluster; null is this machine")
    gpus: float = Field(description="GPUs of a Ray trial")
    at_once: int = Field(description="trials in parallel")
    study_storage: str | None = Field(description="URL of the study; null is a file")
    replay: ReplayRecord | None = _omitted("table of a replay, which trains nothing")
    titles: dict[str, str] = Field({}, description="titles of data set and backbone by name")
    plugins: list[PluginRecord] = _omitted("plug-ins that the results depend on", [])
    recipe: RecipeRecord | None = _omitted("recipe; null without one")

    @property
    def identity(self) -> str:
        return self.search


class SuggestionRecord(_Record):
    """A finished suggestion."""

    number: int = Field(description="position in the order of suggestions")
    status: str = Field(description="status of the suggestion")
    point: dict[str, Any] = Field(description="settings in effect, by `slot.key`")
    drop: float | None = Field(description="loss of accuracy; null if not done")
    is_within: bool = Field(description="whether it is done and its drop is within the guard")
    specs: list[str] = Field(description="hashes of its trial specs")
    crashes: list[str] = _omitted("cause of each trial that crashed; omitted without any", [])
    shorter: list[str] = _omitted("hashes of its trials with fewer epochs", [])


class Importance(_Record):
    """Importance of settings: how well each one separates the best suggestions from the rest."""

    done: int = Field(description="suggestions with values")
    top: int = Field(description="how many of them count as the best")
    shares: dict[str, dict[str, float]] = Field(
        description="by metric and setting, the first ones matter most"
    )
    intervals: dict[str, dict[str, list[float]]] = Field(
        {}, description="5 and 95 % quantiles of these shares over resampled suggestions"
    )
    variances: dict[str, dict[str, list[float]]] = Field(
        {}, description="shares of a surrogate's variance by setting and pair, with quantiles"
    )
    r2: dict[str, float] = Field({}, description="cross-validated R2 of the surrogate by metric")
    statement: str = Field(description="why importances are missing; otherwise empty")


class SearchOutcome(_Manifest):
    """Result of a search."""

    file_name = SEARCH_OUTCOME

    asked: int = Field(description="requested number of suggestions")
    planned: int = Field(description="suggestions, including retried ones")
    metrics: list[str] = Field(description="metrics of the objective; the first one decides")
    baseline: dict[str, float] = Field(description="the baseline's metrics on `select`")
    settings: Settings = Field(description="search space by `slot.key`")
    defaults: dict[str, Any] = Field(description="the method's own settings")
    published: list[dict[str, Any]] = Field(description="further published settings")
    suggestions: list[SuggestionRecord] = Field(description="finished suggestions")
    front: list[int] = Field(description="numbers of the Pareto set within the guard")
    chosen: int | None = Field(description="number of the selected suggestion")
    importance: Importance = Field(description="importance of the settings")
    command: str | None = Field(None, description="command that trains the choice")
    stopped: str = _omitted("what a limit of time left undone; omitted if nothing", "")
    reused: list[str] = _omitted("hashes of trials taken from earlier searches; or omitted", [])


class ReadRecord(_Record):
    """An evaluation on `test`."""

    seeds: int = Field(description="number of fresh seeds")
    command: Command = Field("", description="command that requested it")
    methods: list[str] = Field([], description="methods of a tuned comparison")
    points: int = Field(0, description="points of a path; omitted for an evaluation")


class TunedMethod(_Record):
    """A method of a tuned comparison, and what its search has chosen."""

    label: str = Field(description="its label at published settings")
    folder: str = Field("", description="folder of its search; empty without settings to search")
    searched: list[str] = Field([], description="searched settings by `slot.key`")
    suggestions: int = Field(0, description="suggestions that ended")
    chosen: int | None = Field(None, description="number of the selected suggestion")
    published: dict[str, Any] = Field({}, description="the method's own settings")
    tuned: dict[str, Any] | None = Field(None, description="the selected settings")
    published_value: float | None = Field(
        None, description="metric on `select` at the published ones"
    )
    tuned_value: float | None = Field(None, description="metric on `select` at the selected ones")
    is_within: bool = Field(True, description="whether published settings are within the guard")
    cost_s: float = Field(0.0, description="seconds of the trials of its search")
    command: Command = Field("", description="command that repeats its tuned rung")


class TunedManifest(_Manifest):
    """Methods of a tuned comparison and its evaluations on `test`, written before each of them."""

    file_name = TUNED

    sweep: str = Field(description="identity of the request, as in the manifest of the run")
    suggestions: int = Field(description="requested number of suggestions of each search")
    metric: str = Field(description="metric that the searches optimise on `select`")
    rule: str = Field(description="rule of the selection, in words")
    methods: list[TunedMethod] = Field(description="methods in the order of their rungs")
    reads: list[ReadRecord] = Field(description="all evaluations on `test` in order")


class SearchEvaluated(_Manifest):
    """Evaluations of the selected trial of a search on `test`."""

    file_name = SEARCH_EVALUATED

    trial: int = Field(description="number of the selected suggestion")
    settings: dict[str, Any] = Field(description="its settings by `slot.key`")
    rule: str = Field(description="rule of the selection, in words")
    reads: list[ReadRecord] = Field([], description="all evaluations on `test` in order")
