"""The commands that look up records: list and explain."""

import io
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES
from analysis.tables.render import View
from analysis.tables.table import table_of
from tune_calib import console
from tune_calib.cli.common import one_format
from tune_calib.cli.options import FORMATS, complete, flag
from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import LADDERS, Ladder
from tune_calib.spec.methods import METHODS, MethodInfo
from tune_calib.spec.metrics import METRICS, Metric
from tune_calib.spec.recipe import RECIPES, Recipe, fitting
from tune_calib.spec.space import SPACES, Space
from tune_calib.text import nearest

Entry = dict[str, Any]

_NOT_LISTED = ("module", "bibtex", "fields", "class", "quick")  # other facts in the index


def _describe_method(record: MethodInfo) -> Entry:
    return {
        "kind": record.kind,
        "title": record.title,
        "paper": record.paper,
        "year": record.year,
        "url": record.url,
        "needs": sorted(record.needs),
        "keeps accuracy": {True: "yes", False: "no", None: None}[record.keeps_accuracy],
        "defaults": dict(record.params()),
        "recipe": record.recipe,
    }


def _describe_recipe(record: Recipe) -> Entry:
    return {
        "title": record.title,
        "source": record.source,
        "url": record.url,
        "data sets": [name for name in DATASETS if record.name in fitting(name)],
        "backbones": list(record.backbones),
        "settings": record.settings,
        "on": record.on,
        "for methods": record.methods,
    }


def _describe_ladder(record: Ladder) -> Entry:
    rungs = [rung.label for rung in record.rungs]
    table = {"table": record.table} if record.table else {}
    return {"title": record.title, "published": record.published, "rungs": rungs, **table}


def _describe_space(record: Space) -> Entry:
    settings = {key: setting.plain() for key, setting in record.settings.items()}
    return {"settings": settings, "first": list(map(dict, record.first))}


def _describe_metric(record: Metric) -> Entry:
    return {
        "title": record.title,
        "better": {"min": "smaller", "max": "larger", None: "none"}[record.direction],
        "unit": record.unit,
        "of": {True: "select, test", False: "foreign images: ood/SET"}[record.is_of_trials],
        "searchable": {True: "yes", False: "no"}[record.is_searchable],
    }


def _describe_figure(record: Any) -> Entry:
    return {"title": record.title, "how to read it": record.reading}


REGISTRIES: Mapping[str, tuple[Registry[Any], Callable[[Any], Entry]]] = {
    "methods": (METHODS, _describe_method),
    "ladders": (LADDERS, _describe_ladder),
    "recipes": (RECIPES, _describe_recipe),
    "datasets": (DATASETS, lambda record: {"title": record.title}),
    "backbones": (BACKBONES, lambda record: {"title": record.title}),
    "spaces": (SPACES, _describe_space),
    "metrics": (METRICS, _describe_metric),
    "ladder-figures": (LADDER_FIGURES, _describe_figure),
    "search-figures": (SEARCH_FIGURES, _describe_figure),
}
LISTS = (*REGISTRIES, "published")


def describe_entries(what: str, name: str | None = None) -> list[Entry]:
    if what == "published":
        from analysis.published import describe_published

        tables = describe_published()
        if name is not None and name not in tables:
            raise UserError(f"unknown published table {name!r}{nearest(name, list(tables))}")
        names = [name] if name else list(tables)
        return [{"name": table, **tables[table]} for table in names]
    registry, describe = REGISTRIES[what]
    names = [name] if name else list(registry)
    if what == "ladders" and name is None:  # the others are listed below the tables of papers
        names = [ladder for ladder in names if LADDERS[ladder].table is None]
    entries = []
    for record_name in names:
        registry.require(record_name)
        facts = registry.facts(record_name)  # from the index, without importing the record
        listed = {key: value for key, value in facts.items() if key not in _NOT_LISTED}
        entries.append({"name": record_name, **(listed or describe(registry[record_name]))})
    return entries


def list_(
    what: Annotated[
        str,
        typer.Argument(help=f"one of {', '.join(LISTS)}", autocompletion=complete(lambda: LISTS)),
    ],
    name: Annotated[str | None, typer.Argument(help="show one entry in full")] = None,
    as_json: Annotated[bool, flag("--json", "print JSON", FORMATS)] = False,
    as_markdown: Annotated[bool, flag("--markdown", "print Markdown", FORMATS)] = False,
) -> None:
    """List what is registered: methods, ladders, data sets, metrics and more.

    Examples:
        tune-calib list methods
        tune-calib list methods mac_cal
        tune-calib list recipes --columns title,source
        tune-calib list metrics --json
    """
    form = one_format(json=as_json, markdown=as_markdown)
    if what not in LISTS:
        raise UserError(f"cannot list {what!r}; known: {', '.join(LISTS)}")
    entries = describe_entries(what, name)
    listed = entries
    if what == "spaces":
        listed = _space_rows(entries)
    elif what == "ladders" and name is None:  # the names of all rungs take hundreds of characters
        listed = [{**ladder, "rungs": len(ladder["rungs"])} for ladder in entries]
    rows = list(map(_printed, listed))
    if form == "plain" and name is not None and what != "spaces":
        for row in rows:
            console.echo(console.entries({head: text for head, text in row.items() if text}))
        return
    left_out = {"url"}
    if form == "markdown":  # too wide for a page
        left_out |= {"defaults", "settings", "on", "for methods"}
    heads = [head for head in next(iter(rows), {}) if head not in left_out]
    table = table_of(heads, [list(map(row.get, heads)) for row in rows])
    console.echo(console.shown(View([table], entries).render(form)))


def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="method or ladder, or a pipeline with --bibtex; see: tune-calib list methods",
            autocompletion=complete(lambda: [*METHODS, *LADDERS]),
        ),
    ],
    bibtex: Annotated[bool, flag("--bibtex", "print the BibTeX of its papers")] = False,
) -> None:
    """Explain a method or a ladder: formula, settings, readings of its paper, references.

    Examples:
        tune-calib explain mac_cal
        tune-calib explain decoupling
        tune-calib explain ls+mac_cal+temperature --bibtex
    """
    if bibtex:
        _print_bibtex(name.split("+"))
        return

    from tune_calib.spec.describe import describe

    console.echo(format_markdown(describe(name), min(100, shutil.get_terminal_size().columns)))


def format_markdown(text: str, width: int) -> str:
    from rich.console import Console
    from rich.markdown import Markdown

    page = Console(file=io.StringIO(), width=width)
    with page.capture() as shown:
        # A URL in angle brackets would be printed twice.
        page.print(Markdown(re.sub(r"<(https?://[^>]+)>", r"\1", text), hyperlinks=False))
    return "\n".join(line.rstrip() for line in shown.get().splitlines())


def _print_bibtex(names: Sequence[str]) -> None:
    for name in names:
        METHODS.require(name)
    bibtex = {name: METHODS.facts(name).get("bibtex") or METHODS[name].bibtex for name in names}
    entries: dict[str, None] = {}  # in the order in which methods were given
    for name in names:
        entries |= dict.fromkeys(map(str.strip, re.split(r"^(?=@)", bibtex[name], flags=re.M)))
    console.echo("\n\n".join(filter(None, entries)))
    for name in dict.fromkeys(names):
        if not bibtex[name]:
            console.echo(f"{name} has no paper to cite", err=True)


def _printed(entry: Entry) -> dict[str, str]:
    row = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            row[key] = ", ".join(f"{name}={setting}" for name, setting in _flat(value))
        elif isinstance(value, list):
            row[key] = ", ".join(value)
        else:
            row[key] = "" if value is None else str(value)
    return row


def _flat(nested: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        if isinstance(value, Mapping):
            prefix = f"{above}{key}." if key else above
            yield from _flat(value, prefix)
        else:
            yield f"{above}{key}", value


def _space_rows(entries: list[Entry]) -> list[Entry]:
    rows = []
    for entry in entries:
        for key, setting in SPACES[entry["name"]].settings.items():
            row = {"method": entry["name"], "setting": key, "values": str(setting)}
            tried = [str(point[key]) for point in entry["first"] if key in point]
            rows.append(row | {"tried first, after the defaults": tried, "reason": setting.reason})
    return rows
