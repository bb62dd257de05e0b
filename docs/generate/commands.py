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
    commands: dict[str, Any] = {}
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            for subname, subcommand in command.commands.items():
                commands[f"{name} {subname}"] = subcommand
        else:
            commands[name] = command
    return commands


def every_command() -> str:
    """Return a section for each visible command."""
    parts = []
    for name, command in commands().items():
        if command.hidden:
            continue
        parts += [f"## `{name}`", inspect.cleandoc(command.help or "")]
        if command.examples:
            parts.append("\n".join(["```", *command.examples, "```"]))
        rows = []
        for option in command.params:
            if not getattr(option, "hidden", False):
                rows.append((_name(option), _default(option), option.help or ""))
        if rows:
            parts.append(table(("Option", "Default", "Meaning"), rows))
    return "\n\n".join(parts)


def _name(parameter: Parameter) -> str:
    if isinstance(parameter, TyperOption):
        return ", ".join(code(option) for option in parameter.opts)
    name = code((parameter.name or "").upper())
    if parameter.nargs != 1:
        name += " ..."
    return name


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):  # in words
        return parameter.show_default
    if parameter.default in (None, False, (), []) or callable(parameter.default):
        return ""
    return code(parameter.default)
