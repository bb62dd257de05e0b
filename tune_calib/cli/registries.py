"""The commands that say what is registered."""

import io
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic

import typer

from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES
from analysis.tables.render import View
from analysis.tables.table import table_of
from tune_calib import console
from tune_calib.cli import completion
from tune_calib.cli.options import one_format
from tune_calib.cli.panels import FORMATS
from tune_calib.errors import UserError
from tune_calib.registry import Registry, T
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import LADDERS
from tune_calib.spec.methods import METHODS, MethodInfo
from tune_calib.spec.metrics import METRICS, Metric
from tune_calib.spec.recipe import RECIPES, fitting
from tune_calib.spec.space import SPACES
from tune_calib.text import nearest

if TYPE_CHECKING:
    from analysis.figure import Figure
    from tune_calib.spec.backbones import BackboneInfo
    from tune_calib.spec.datasets import DatasetInfo
    from tune_calib.spec.ladder import Ladder
    from tune_calib.spec.recipe import Recipe
    from tune_calib.spec.space import Space

Entry = dict[str, Any]

_NOT_LISTED = ("module", "bibtex", "fields", "quick")  # further facts of the index
_WIDE = ("defaults", "settings", "on", "for methods")  # columns too wide for a page


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A registry, and what its records tell of themselves besides their names."""

    registry: Registry[T]
    describe: Callable[[T], Entry]

    def entries(self, name: str | None) -> list[Entry]:
        """Of one record, or of all."""
        return [self._entry(each) for each in ([name] if name else self.registry)]

    def _entry(self, name: str) -> Entry:
        self.registry.require(name)
        facts = self.registry.facts(name)
        listed = {key: value for key, value in facts.items() if key not in _NOT_LISTED}
        return {"name": name, **(listed or self.describe(self.registry[name]))}


def _of_method(record: MethodInfo) -> Entry:
    return {
        "kind": record.kind,
        "title": record.title,
        "paper": record.paper,
        "year": record.year,
        "url": record.url,
        "needs": sorted(record.needs),
        "keeps accuracy": {True: "yes", False: "no", None: None}[record.keeps_accuracy],
        "defaults": record.params().model_dump(mode="json"),
        "recipe": record.recipe,
    }


def _of_recipe(record: "Recipe") -> Entry:
    fits = [name for name in DATASETS if record.name in fitting(name)]
    return {
        "title": record.title,
        "source": record.source,
        "url": record.url,
        "data sets": fits,
        "backbones": list(record.backbones),
        "settings": record.settings,
        "on": record.on,
        "for methods": record.methods,
    }


def _of_ladder(record: "Ladder") -> Entry:
    rungs = [rung.label for rung in record.rungs]
    return {"title": record.title, "published": record.published, "rungs": rungs}


def _of_space(record: "Space") -> Entry:
    settings = {key: setting.plain() for key, setting in record.settings.items()}
    return {"settings": settings, "first": [dict(point) for point in record.first]}


def _of_metric(record: Metric) -> Entry:
    of = "select, test" if record.is_of_trials else "foreign images: ood/SET"
    better = {"min": "smaller", "max": "larger", None: "none"}[record.direction]
    searchable = "yes" if record.is_searchable else "no"
    about = {"title": record.title, "better": better, "unit": record.unit, "of": of}
    return {**about, "searchable": searchable}


def _of_titled(record: "DatasetInfo | BackboneInfo") -> Entry:
    return {"title": record.title}


class _Published:
    """The tables that papers print."""

    def entries(self, name: str | None) -> list[Entry]:
        """Of one table, or of all.

        Raises:
            UserError: there is none of that name.
        """
        from analysis.published import describe_published

        tables = describe_published()
        if name is not None and name not in tables:
            raise UserError(f"unknown published table {name!r}{nearest(name, list(tables))}")
        return [{"name": each, **tables[each]} for each in tables if name in (None, each)]


def _of_figure(record: "Figure[Any]") -> Entry:
    return {"title": record.title, "how to read it": record.reading}


LISTS: Mapping[str, Listing[Any] | _Published] = {
    "methods": Listing(METHODS, _of_method),
    "ladders": Listing(LADDERS, _of_ladder),
    "recipes": Listing(RECIPES, _of_recipe),
    "datasets": Listing(DATASETS, _of_titled),
    "backbones": Listing(BACKBONES, _of_titled),
    "spaces": Listing(SPACES, _of_space),
    "metrics": Listing(METRICS, _of_metric),
    "published": _Published(),
    "ladder-figures": Listing(LADDER_FIGURES, _of_figure),
    "search-figures": Listing(SEARCH_FIGURES, _of_figure),
}


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help=f"one of {', '.join(LISTS)}", autocompletion=completion.names(lambda: LISTS)
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(help="one entry alone, with all that is known of it"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="a list of objects", rich_help_panel=FORMATS)
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="a table for a page", rich_help_panel=FORMATS)
    ] = False,
) -> None:
    """Show what is registered.

    Examples:
        tune-calib list methods
        tune-calib list methods mac_cal
        tune-calib list recipes --columns title,source
        tune-calib list metrics --json
    """
    form = one_format(json=as_json, markdown=as_markdown)
    if what not in LISTS:
        raise UserError(f"cannot list {what!r}; known: {', '.join(LISTS)}")
    entries = LISTS[what].entries(name)
    rows = [_printed(each) for each in (_space_rows(entries) if what == "spaces" else entries)]
    if form == "plain" and name is not None and what != "spaces":
        told = (console.entries({k: v for k, v in row.items() if v}) for row in rows)
        console.echo("\n\n".join(told))
        return
    left_out = {"url", *(_WIDE if form == "markdown" else ())}
    heads = [head for head in (rows[0] if rows else {}) if head not in left_out]
    table = table_of(heads, [[row[head] for head in heads] for row in rows])
    console.echo(console.shown(View([table], entries).render(form)))


def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="of a method or a ladder: tune-calib list methods",
            autocompletion=completion.names(lambda: [*METHODS, *LADDERS]),
        ),
    ],
) -> None:
    """Tell what a method or a ladder does: formula, settings, readings of its paper, reference.

    Examples:
        tune-calib explain mac_cal
        tune-calib explain decoupling
    """
    from tune_calib.spec.describe import describe

    text = describe(name)
    console.echo(format_markdown(text, min(100, shutil.get_terminal_size().columns)))


def format_markdown(text: str, width: int) -> str:
    """Return Markdown as it reads in a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    page = Console(file=io.StringIO(), width=width)
    with page.capture() as shown:
        # An address between brackets would stand there twice.
        page.print(Markdown(re.sub(r"<(https?://[^>]+)>", r"\1", text), hyperlinks=False))
    return "\n".join(line.rstrip() for line in shown.get().splitlines())


def cite(
    methods: Annotated[
        list[str],
        typer.Argument(
            help="methods or pipelines, such as ls+mac_cal+temperature",
            autocompletion=completion.names(lambda: METHODS),
        ),
    ],
) -> None:
    """Print the BibTeX of the papers behind methods, each entry once.

    Examples:
        tune-calib cite ls+mac_cal+temperature > methods.bib
    """
    names = [name for pipeline in methods for name in pipeline.split("+")]
    for name in names:
        METHODS.require(name)
    bibtex = {name: METHODS.facts(name).get("bibtex") or METHODS[name].bibtex for name in names}
    # A dictionary keeps the order in which methods were named.
    texts = (text for name in names for text in re.split(r"^(?=@)", bibtex[name], flags=re.M))
    console.echo("\n\n".join(dict.fromkeys(filter(None, map(str.strip, texts)))))
    for name in dict.fromkeys(names):
        if not bibtex[name]:
            console.echo(f"no paper is known of {name}", err=True)


def _printed(entry: Entry) -> dict[str, str]:
    """An entry as a table row: nested values in one line each."""
    row = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            row[key] = ", ".join(f"{k}={v}" for k, v in _flat(value))
        else:
            text = "" if value is None else str(value)
            row[key] = ", ".join(value) if isinstance(value, list) else text
    return row


def _flat(nested: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings with the names of what they are of, e.g. ``network.lr``."""
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}." if key else above)
        else:
            yield f"{above}{key}", value


def _space_rows(entries: list[Entry]) -> list[Entry]:
    """A row a setting: where it is searched, and which published values are tried first."""
    return [
        {
            "method": entry["name"],
            "setting": key,
            "values": str(setting),
            "tried first, after the defaults": [str(p[key]) for p in entry["first"] if key in p],
        }
        for entry in entries
        for key, setting in SPACES[entry["name"]].settings.items()
    ]
