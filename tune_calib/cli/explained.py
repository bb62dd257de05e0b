"""A method or a ladder in words: from its record, its settings and what is known of its paper."""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tune_calib.cli import fields
from tune_calib.errors import UserError
from tune_calib.spec.ladder import LADDERS, Ladder, Rung
from tune_calib.spec.methods import METHODS, NEEDS, MethodInfo
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.space import SPACES
from tune_calib.text import as_setting, counted, nearest, shown

READINGS = Path(__file__).parents[1] / "methods/readings.md"
"""What was found in the papers; sources name its sections as ``docs/pages/readings.md#...``."""

_SECTION = re.compile(r"docs/pages/readings\.md#([\w-]+)")


def explained(name: str, width: int = 100) -> str:
    """What a method does, or the ladder of a name, or both.

    Args:
        name: of a method or a ladder.
        width: of a line, in letters.

    Raises:
        UserError: there is neither.
    """
    parts = [_of_method(METHODS[name])] if name in METHODS else []
    parts += [_of_ladder(LADDERS[name])] if name in LADDERS else []
    if not parts:
        known = sorted({*METHODS, *LADDERS})
        raise UserError(f"unknown method or ladder {shown(name)}{nearest(name, known)}")
    return "\n\n\n".join("\n\n".join(_wrapped(each, width) for each in part) for part in parts)


def _of_method(method: MethodInfo) -> Iterator[str]:
    kind = "post-hoc" if method.kind == "posthoc" else method.kind
    about = inspect.getdoc(inspect.getmodule(method.implementation)) or ""
    yield f"{method.name}: {method.title}"
    yield f"A {kind} method. {method.paper} {method.year}, {method.url}"
    yield _plain(about)
    if method.formula:
        yield "FORMULA (LaTeX)\n\n" + _formula(method.formula)
    yield "SETTINGS"
    yield from _settings(method)
    yield from _facts(method)
    yield from _readings(
        [about, *(f.description or "" for f in method.params.model_fields.values())]
    )
    if method.bibtex:
        yield f"REFERENCE\n\n{textwrap.indent(method.bibtex.strip(), '  ')}"


def _formula(formula: str) -> str:
    """A clause a line: each but the first begins a line with a quad."""
    clauses = re.split(r"\n\s*\\quad", textwrap.dedent(formula).strip())
    return "\n".join(f"  {' '.join(clause.split())}" for clause in clauses)


def _settings(method: MethodInfo) -> Iterator[str]:
    settings = fields.shown(method.params)
    space = SPACES[method.name].settings if method.name in SPACES else {}
    searched = {key.partition(".")[2]: str(setting) for key, setting in space.items()}
    if not settings:
        yield "  None of its own."
    for key, field in settings.items():
        where = f"; searched in {searched[key]}" if key in searched else ""
        first = f"  {method.kind}.{key} = {fields.default_of(field)}"
        meaning = " ".join(fields.first_paragraph(field).split())
        # An option a line, as it is filled below.
        options = re.sub(r"\n +(?=[^\s-])", " ", fields.options_of(field)).splitlines()
        told = [f"{first} ({fields.range_of(field)}{where})", *_inside([meaning, *options])]
        yield _plain("\n".join(told))
    others = [f"{method.kind}.{key} in {searched[key]}" for key in searched if key not in settings]
    if others:
        yield f"  Searched besides: {', '.join(others)}."
    for place, own in (method.dataset_defaults or {}).items():
        dataset, _, backbone = place.partition("/")
        where = f"{dataset} with {backbone}" if backbone else dataset
        yield f"  On {where}: {_values(own)}."


def _inside(lines: Iterable[str]) -> list[str]:
    return [f"      {line}" for line in lines if line.strip()]


def _facts(method: MethodInfo) -> Iterator[str]:
    if method.recipe is not None:
        recipe = RECIPES[method.recipe]
        others = "".join(
            f"; {f'on {place} ' if place else ''}{_values(own)}"
            for place, own in recipe.methods.get(method.name, {}).items()
        )
        yield (
            f"RECIPE of its authors: {recipe.name} ({recipe.title}){others}. Its optimiser is "
            "taken by: tune-calib compare --own-recipes."
        )
    if method.needs:
        yield f"NEEDS {'; '.join(NEEDS[need] for need in sorted(method.needs))}."
    if method.keeps_accuracy is not None:
        yield "ACCURACY " + ("is kept." if method.keeps_accuracy else "may change.")


def _readings(texts: list[str]) -> Iterator[str]:
    """The sections of ``READINGS`` that some texts name, each once."""
    wanted = dict.fromkeys(anchor for text in texts for anchor in _SECTION.findall(text))
    sections = re.split(r"^## ", READINGS.read_text(encoding="utf-8"), flags=re.M)[1:]
    for section in sections:
        title, _, text = section.partition("\n")
        if re.sub(r"[^\w]+", "-", title.lower()).strip("-") in wanted:
            yield f"READINGS OF THE PAPERS: {title}"
            yield _plain(text.strip())


def _of_ladder(ladder: Ladder) -> Iterator[str]:
    controls = sum(rung.kind == "control" for rung in ladder.rungs)
    rungs = counted(len(ladder.rungs) - controls, "rung")
    more = f", and {counted(controls, 'control')}" if controls else ""
    command = f"tune-calib ablate {ladder.name}{' --controls' if controls else ''}"
    yield f"{ladder.name} (ladder): {ladder.title}"
    yield f"A ladder of {rungs}{more}: {command}."
    if ladder.published:
        yield f"Published: tune-calib report OUT --published {ladder.published}"
    if ladder.head_recipe:
        yield f"All heads are trained by the recipe of {ladder.head_recipe}."
    yield "RUNGS"
    for rung in ladder.rungs:
        yield "\n".join(_of_rung(rung))


def _of_rung(rung: Rung) -> Iterator[str]:
    kind = {"step": "", "base": " (base)"}.get(rung.kind, f" ({rung.kind})")
    yield f"  {rung.label}{kind}: {rung.ingredient}"
    own = {
        f"{slot}.{key}": value for slot, keys in rung.slots.items() for key, value in keys.items()
    }
    if own:
        yield f"      sets {_values(own)}"
    if rung.adds_head_epochs:
        yield "      trains the network as many epochs longer as heads are retrained"
    if rung.published:
        yield f"      in the paper: {rung.published}"


def _values(own: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {as_setting(value)}" for key, value in own.items())


def _plain(text: str) -> str:
    """Markdown and docstrings as they read in a terminal."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text.replace("`", ""))
    return _SECTION.sub("the readings below", text)


def _wrapped(text: str, width: int) -> str:
    """Paragraphs filled; what is indented, a list or a table keeps its lines."""
    lines: list[str] = []
    for block in re.split(r"\n\n", text):
        is_text = not re.match(r"\s|[-|@]", block)
        rows = [" ".join(block.split())] if is_text else block.splitlines()
        for row in rows:
            indent = " " * (len(row) - len(row.lstrip()) + 2 * (not is_text))
            lines += textwrap.wrap(
                row,
                width,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [""]
        lines.append("")
    return "\n".join(lines[:-1])
