"""Generate the reference of commands, with arguments and options as in ``--help``."""

import inspect
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from docs.generate.page import table
from tune_calib.cli import app
from tune_calib.spec.describe import code

Parameter = TyperArgument | TyperOption


def commands() -> Mapping[str, Any]:
    """Return the commands by name, those of a group as ``analyze ranks``, hidden ones too."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        below = command.commands if isinstance(command, TyperGroup) else None
        found |= {f"{name} {key}": one for key, one in below.items()} if below else {name: command}
    return found


def every_command() -> str:
    """Return a section for each visible command."""
    parts = []
    for name, command in commands().items():
        if command.hidden:
            continue
        parts += [f"## `{name}`", inspect.cleandoc(command.help or "")]
        if command.examples:
            parts.append("\n".join(["```", *command.examples, "```"]))
        shown = [each for each in command.params if not getattr(each, "hidden", False)]
        rows = [(_name(each), _default(each), each.help or "") for each in shown]
        if rows:
            parts.append(table(("Option", "Default", "Meaning"), rows))
    return "\n\n".join(parts)


def _name(parameter: Parameter) -> str:
    if isinstance(parameter, TyperOption):
        return ", ".join(code(option) for option in parameter.opts)
    return code((parameter.name or "").upper()) + (" ..." if parameter.nargs != 1 else "")


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):  # told in words
        return parameter.show_default
    is_told = parameter.default not in (None, False, (), []) and not callable(parameter.default)
    return code(parameter.default) if is_told else ""
