"""The loggers by name; what one needs is imported when it is asked for."""

import contextlib
from collections.abc import Iterator, Sequence
from importlib import import_module

from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.text import nearest
from tune_calib.tuning.loggers.base import Logger

LOGGERS = {
    "tensorboard": "TensorBoard",
    "wandb": "WeightsAndBiases",
    "mlflow": "MLflow",
}
"""Name, which is that of the module and of the extra, and class."""


def loggers(names: Sequence[str]) -> dict[str, type[Logger]]:
    """Loggers by name, each once.

    Raises:
        UserError: one is unknown, or what it needs is not installed.
    """
    found = {}
    for name in names:
        if name not in LOGGERS:
            raise UserError(f"unknown `log` {name!r}{nearest(name, list(LOGGERS))}")
        try:
            module = import_module(f"tune_calib.tuning.loggers.{name}")
        except ImportError as error:
            raise UserError(
                f"`log` {name} needs what is not installed ({error.name}): "
                f"pip install 'tune-calib[{name}]'"
            ) from None
        found[name] = getattr(module, LOGGERS[name])
    return found


_wanted: list[tuple[tuple[str, ...], list[AnyPath]]] = []


@contextlib.contextmanager
def wanted(names: Sequence[str]) -> Iterator[list[AnyPath]]:
    """Ask for loggers while the block runs.

    Yields:
        The folders that they are told of, in their order.
    """
    folders: list[AnyPath] = []
    _wanted.append((tuple(dict.fromkeys(names)), folders))
    try:
        yield folders
    finally:
        _wanted.pop()


def names_for(out: AnyPath) -> tuple[str, ...]:
    """The loggers that are asked for; notes that they are told of a folder."""
    if not _wanted:
        return ()
    names, folders = _wanted[-1]
    if out not in folders:
        folders.append(out)
    return names
