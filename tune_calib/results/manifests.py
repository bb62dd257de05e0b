"""The JSON files that say what a folder of results holds: a record each.

Whoever writes or reads one does it here. They are read strictly: a file of a later version asks
for an update, what is half-written or foreign is a ``DamagedFileError``.
"""

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import AnyPath, refuse_special
from tune_calib.results.tables import atomic_write
from tune_calib.spec.names import SEARCH_EVALUATED, SEARCH_MANIFEST, SEARCH_OUTCOME
from tune_calib.text import mask_urls

VERSION: Literal[1] = 1
SWEEP_MANIFEST = "sweep.json"

Command = Annotated[str, AfterValidator(mask_urls)]
"""A command line. Earlier versions wrote some passwords of databases."""


class ForeignFileError(DamagedFileError):
    """A file has the name of one of ours, and something else in it."""


class _Record(BaseModel):
    """Further keys are let through and kept: a later program may have written some.

    Fields with a default are those that earlier programs did not write.
    """

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class _Manifest(_Record):
    """A file of a folder of results."""

    file_name: ClassVar[str]
    version: Literal[1]

    @classmethod
    def read(cls, folder: AnyPath) -> Self:
        """Read the file of a folder.

        Raises:
            FileNotFoundError: there is none.
            DamagedFileError: it is half-written.
            ForeignFileError: it is not such a file.
            UserError: a later version wrote it.
        """
        path = folder / cls.file_name
        refuse_special(path)
        try:
            content = json.loads(path.read_bytes())
        # Nonsense may be brackets alone, which take the parser past Python's depth.
        except (ValueError, RecursionError):
            raise DamagedFileError(f"{path} is not whole") from None
        version = content.get("version") if isinstance(content, dict) else None
        # Before its fields are read: in a later format they may be others.
        if isinstance(version, int) and version > VERSION:
            raise UserError(
                f"{path} is of format {version}, which a later tune-calib wrote: update it to "
                "read it"
            )
        try:
            return cls.model_validate(content)
        except ValidationError:
            raise ForeignFileError(f"{path} is not such a file as tune-calib writes") from None

    def write(self, folder: AnyPath) -> None:
        """Write the file of a folder, whole or not at all."""
        atomic_write(folder / self.file_name, f"{json.dumps(self.plain(), indent=1)}\n".encode())

    def plain(self) -> dict[str, Any]:
        """What stands in the file: nothing that nobody said."""
        # A default stands for a key that an old file lacks: it must not be written as if told.
        return self.model_dump(exclude_unset=True)

    def over(self, old: Self) -> Self:
        """What this file says, and further keys of the old one that it replaces."""
        return self.model_copy(update=old.model_extra or {})


class RungRecord(_Record):
    """A rung of a ladder.

    Attributes:
        index: of it in its ladder; there are gaps where controls or rungs are left out.
        label: as tables print it.
        ingredient: what it adds to the rung before.
        published: the row of the published table that it stands beside.
        kind: what it is compared with.
    """

    index: int
    label: str
    ingredient: str = ""
    published: str | None
    kind: Literal["base", "step", "variant", "control"]


class PlannedRecord(_Record):
    """A planned trial.

    Attributes:
        spec_hash: of its spec.
        rung: index of its rung.
        network_seed: of its network.
        head_seed: of its head; None for a trial that trains none.
    """

    spec_hash: str
    rung: int
    network_seed: int
    head_seed: int | None


class PluginRecord(_Record):
    """A plug-in behind the results.

    Attributes:
        name: of its file or module.
        content: hash of its text.
        where: path of its file, or its module.
    """

    # Both are parts of the path of a copy of its text.
    name: str = Field(pattern=r"^[^/\\\x00-\x1f]+$")
    content: str = Field(pattern=r"^[0-9a-z]+$")
    where: str


class RecipeRecord(_Record):
    """The recipe of a sweep or a search.

    Attributes:
        name: of it.
        title: of it.
        source: the paper or program that it is of.
        settings: by slot, as it sets them on the data set.
        told: its name, and what was asked for instead of what it sets.
    """

    name: str
    title: str = ""
    source: str = ""
    settings: dict[str, dict[str, Any]] = {}
    told: str = ""


class SweepManifest(_Manifest):
    """``sweep.json``: what was asked of a ladder or comparison, and every trial of it.

    Attributes:
        sweep: identity of the question, the same in every row.
        ladder: its name.
        title: what is over its tables.
        command: to do the same again.
        dataset: on which it ran.
        setting: data, networks and heads in words.
        published: table of a paper that stands beside it.
        rungs: in the order of the ladder, controls last.
        network_seeds: of it.
        head_seeds: of it.
        paired_seeds: seeds of networks and heads vary together.
        planned: every trial.
        titles: printed names of its data set and backbones, by their registry names.
        plugins: behind it.
        recipe: by which it was run; programs of before there were any wrote none.
        program: digest of the program that the command ran; empty where the command alone does not
            say what is requested.
        is_lost: the file is lost, and this is what the rows tell; never written.
    """

    file_name = SWEEP_MANIFEST

    sweep: str
    ladder: str = "ladder"
    title: str
    command: Command
    dataset: str
    setting: str
    published: str | None
    rungs: list[RungRecord]
    network_seeds: list[int]
    head_seeds: list[int]
    paired_seeds: bool
    planned: list[PlannedRecord]
    titles: dict[str, str] = {}
    plugins: list[PluginRecord] = []
    recipe: RecipeRecord | None = None
    program: str = ""
    is_lost: bool = Field(False, exclude=True)


class SeedsRecord(_Record):
    """Seeds under which every suggestion of a search is tried.

    Attributes:
        network: of networks.
        head: of heads.
        is_paired: the i-th network goes with the i-th head seed; else every pair is run.
    """

    network: list[int]
    head: list[int]
    is_paired: bool


class ObjectiveRecord(_Record):
    """What is searched for, on ``select``.

    Attributes:
        metrics: the first one decides.
        guard: accuracy that may be lost against the baseline, a fraction.
    """

    metrics: list[str]
    guard: float


class QuestionRecord(_Record):
    """What a search asks, as ``tuning.search.definition.SearchDefinition`` writes it.

    Attributes:
        method: whose space is searched.
        defaults: settings by slot of the recipe on the data set.
        given: settings by slot that were asked for; they are not searched.
        seeds: under which every suggestion is tried.
        objective: what is searched for.
        sampler: how.
        sampler_seed: its seed.
        scheduler: what stops networks early.
        population: suggestions that are asked for together.
        lag: batches that are asked for before the first of them is told.
        own_recipes: each method is trained by the recipe of its authors.
        recipe: name of the recipe and what it sets otherwise for backbones and methods; none of a
            quick one.
    """

    method: str
    defaults: dict[str, dict[str, Any]] = {}
    given: dict[str, dict[str, Any]] = {}
    seeds: SeedsRecord
    objective: ObjectiveRecord
    sampler: str
    sampler_seed: int
    scheduler: str = "none"
    population: int = 8
    lag: int = 2
    own_recipes: bool = False
    recipe: dict[str, Any] | None = None
    plugins: list[str] = []

    def plain(self) -> dict[str, Any]:
        """As it stands in the file."""
        return self.model_dump(exclude_unset=True)


class CommandRecord(_Record):
    """A command, and how many suggestions it asked for.

    Attributes:
        command: as it was typed.
        trials: suggestions.
    """

    command: Command
    trials: int


class SearchManifest(_Manifest):
    """``search.json``: what was asked of a search, and how it goes on.

    Attributes:
        search: identity of the question, the same in every row.
        question: what it asks.
        rule: by which the choice is made, in words.
        trials: suggestions that are asked for.
        command: that began it.
        commands: that made it as long as it is, in their order.
        specs: hashes of the baseline and of the method's defaults, by these names.
        store: folder of the artifacts; None is ``store`` in the folder of the search.
        data_root: where data sets lie.
        address: of a Ray cluster; None is this machine.
        gpus: of a Ray trial.
        at_once: Ray trials side by side.
        study_storage: URL of the study, without its password; None is a journal file.
        titles: printed names of its data set and backbone, by their registry names.
        plugins: behind it.
        recipe: by which it is run; programs of before there were any wrote none.
    """

    file_name = SEARCH_MANIFEST

    search: str = ""
    question: QuestionRecord
    rule: str
    trials: int
    command: Command
    commands: list[CommandRecord] | None = None
    specs: dict[str, list[str]] | None = None
    store: str | None = None
    data_root: str | None = None
    address: str | None = None
    gpus: float = 0.0
    at_once: int = 1
    study_storage: str | None = None
    titles: dict[str, str] = {}
    plugins: list[PluginRecord] = []
    recipe: RecipeRecord | None = None

    @property
    def can_go_on(self) -> bool:
        """Whether it tells all that the search needs to go on as it began."""
        needed = {"store", "data_root", "address", "gpus", "at_once", "study_storage"}
        # By what the file says, since None is an answer: an old file says nothing of these.
        return needed <= self.model_fields_set


class SuggestionRecord(_Record):
    """A suggestion that ended.

    Attributes:
        number: of it, in the order in which they were made.
        status: how it ended.
        point: settings that matter, by ``slot.key``.
        drop: accuracy that it lost against the baseline; None unless it is done.
        is_within: it is done, and the drop is within the guard.
        specs: hashes of its trials.
    """

    number: int
    status: str
    point: dict[str, Any]
    drop: float | None
    is_within: bool
    specs: list[str]


class Importance(_Record):
    """How much each setting tells the best suggestions from the rest.

    Attributes:
        done: suggestions with values.
        top: how many of them count as the best.
        shares: by metric, then by setting, most important first; those of a metric sum to 1.
        statement: why there are none, else empty.
    """

    done: int
    top: int
    shares: dict[str, dict[str, float]]
    statement: str


class SearchOutcome(_Manifest):
    """``outcome.json``: what a search found.

    Attributes:
        asked: suggestions that the manifest asks for.
        planned: suggestions with those that are tried again, and no more than a grid has.
        metrics: that were searched for; the first one decides.
        baseline: means of metrics on ``select`` over the baseline's networks.
        settings: the space, by ``slot.key``.
        defaults: the method's own settings.
        published: further published settings.
        suggestions: that ended.
        front: numbers of the Pareto set within the guard.
        chosen: number of the choice, if one is within the guard.
        importance: of the settings.
        command: that trains the choice again, with the settings that were fixed; None where no
            command does, and in files of earlier versions.
    """

    file_name = SEARCH_OUTCOME

    asked: int
    planned: int
    metrics: list[str]
    baseline: dict[str, float]
    settings: dict[str, dict[str, Any]]
    defaults: dict[str, Any]
    published: list[dict[str, Any]]
    suggestions: list[SuggestionRecord]
    front: list[int]
    chosen: int | None
    importance: Importance
    command: str | None = None


class ReadRecord(_Record):
    """A look at the test split.

    Attributes:
        seeds: how many fresh ones.
        command: that asked for it.
    """

    seeds: int
    command: Command = ""


class SearchEvaluated(_Manifest):
    """``evaluated.json``: which choice of a search was evaluated on ``test``, and when.

    Attributes:
        trial: number of the choice.
        settings: of it, by ``slot.key``.
        rule: by which it was chosen, in words.
        reads: every look at the test split, in their order; earlier programs told of none.
    """

    file_name = SEARCH_EVALUATED

    version: Literal[1] = VERSION  # earlier programs wrote none
    trial: int
    settings: dict[str, Any]
    rule: str
    reads: list[ReadRecord] = []


class ReportRecord(_Manifest):
    """``report.json``: what a report was made of, so that the same one is not made again.

    Attributes:
        made_of: digest of the results, the options and the program.
        text: what was printed, part by part, for screens of any width.
        files: SHA-256 of each of its files, by name.
    """

    file_name = "report.json"

    made_of: str
    text: list[str | dict[str, Any]]
    files: dict[str, str]
