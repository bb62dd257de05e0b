"""The commands that say what is registered."""

import json
import re
from typing import Annotated, Any

import typer

from tune_calib.cli.options import one_format
from tune_calib.errors import UserError
from tune_calib.registry import BACKBONES, DATASETS, LADDERS, METHODS, SPACES, Registry

_LISTS: dict[str, Registry[Any]] = {
    "methods": METHODS,
    "ladders": LADDERS,
    "datasets": DATASETS,
    "backbones": BACKBONES,
    "spaces": SPACES,
}


_WIDE = ("defaults", "recipe", "recipe on a data set")  # columns too wide for a page


def list_(
    what: Annotated[str, typer.Argument(help="methods, ladders, datasets, backbones or spaces")],
    name: Annotated[str | None, typer.Argument(help="one entry alone")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a list of objects")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="a table for a page")] = False,
) -> None:
    """Show what is registered."""
    form = one_format(json=as_json, markdown=as_markdown)
    if what not in _LISTS:
        raise UserError(f"cannot list {what!r}; known: {', '.join(_LISTS)}")
    registry = _LISTS[what]
    entries = [_entry(entry, registry[entry]) for entry in ([name] if name else registry)]
    if form == "json":
        typer.echo(json.dumps(entries, indent=1))
        return
    from tabulate import tabulate

    if what == "spaces":
        entries = _space_rows(entries)
    rows = [_printed(entry) for entry in entries]
    if form == "markdown":
        rows = [{k: v for k, v in row.items() if k not in _WIDE} for row in rows]
    typer.echo(
        tabulate(rows, headers="keys", tablefmt="github" if form == "markdown" else "simple")
    )


def cite(
    methods: Annotated[
        list[str], typer.Argument(help="methods or pipelines, such as ls+mac_cal+temperature")
    ],
) -> None:
    """Print the BibTeX of the papers behind methods, each entry once."""
    names = [name for pipeline in methods for name in pipeline.split("+")]
    # A dictionary keeps the order in which methods were named.
    found = dict.fromkeys(entry for name in names for entry in _references(METHODS[name].bibtex))
    typer.echo("\n\n".join(found))
    for name in dict.fromkeys(names):
        if not METHODS[name].bibtex:
            typer.echo(f"no paper is known of {name}", err=True)


def _references(bibtex: str) -> list[str]:
    """The entries of a BibTeX text."""
    return [entry.strip() for entry in re.split(r"^(?=@)", bibtex, flags=re.M) if entry.strip()]


def _printed(entry: dict[str, Any]) -> dict[str, str]:
    """An entry as a table row: nested values in one line each, links left to --json."""
    row = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            row[key] = ", ".join(f"{k}={v}" for k, v in value.items())
        elif key != "url":
            row[key] = ", ".join(value) if isinstance(value, list) else str(value)
    return row


def _space_rows(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _entry(name: str, record: Any) -> dict[str, Any]:
    if hasattr(record, "kind"):
        return {
            "name": name,
            "kind": record.kind,
            "title": record.title,
            "paper": record.paper,
            "year": record.year,
            "url": record.url,
            "needs": sorted(record.needs),
            "defaults": record.params().model_dump(mode="json"),
            "recipe": record.slot_defaults or {},
            "recipe on a data set": record.dataset_slot_defaults or {},
        }
    if hasattr(record, "rungs"):
        return {
            "name": name,
            "title": record.title,
            "published": record.published,
            "rungs": [rung.label for rung in record.rungs],
        }
    if hasattr(record, "settings"):
        return {
            "name": name,
            "settings": {key: setting.plain() for key, setting in record.settings.items()},
            "first": [dict(point) for point in record.first],
        }
    return {"name": name, "title": record.title}
