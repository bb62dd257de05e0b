"""Errors for users: one line each, which says what is wrong and how to fix it."""

import errno
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path

# Errors of disks, which need not name a path.
_OF_DISKS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG}
WAY_OUT = "choose another path, or free some space or change permissions there"
"""What helps against most errors of the operating system."""

_ADVICE = re.compile(r"For further information|Some common causes include|Refer to the docum")
_LONGEST = 300  # characters of a cause
_SETTING = re.compile(r"`([a-z_]+)`")
_FIRST_SETTING = re.compile(r"`(\w+)`|((?:data|network|head|posthoc)\.\w+)")


class UserError(Exception):
    """A mistake of the user; the command line prints it as one line and exits with 2.

    The same mistake can be made on the command line, in an experiment file and in Python. Messages
    write settings in backticks, by the names of request fields (`` `guard` ``); the command line
    spells them as its options (``spell_settings``); those of an experiment file follow its key.

    Args:
        message: what is wrong, and how to fix it.
        setting: the wrong setting: a field of a request, which is put before the message, or a
            setting of a slot (``network.lr``). By default the one that the message begins with.
    """

    def __init__(self, message: str, setting: str | None = None) -> None:
        if setting and "." not in setting:
            message = f"`{setting}` {message}"
        super().__init__(message)
        self.setting = setting or None
        if not setting and (first := _FIRST_SETTING.match(message)):
            self.setting = first[1] or first[2]


class RefusedError(UserError):
    """A trial found a problem that stops every trial of its run; the run ends with this line."""


class DataNotFoundError(UserError):
    """The requested data set is not in the data root."""


class DamagedFileError(UserError):
    """A file is incomplete, foreign or does not match its checksum."""


class UnsealedFileError(DamagedFileError):
    """A JSON file can be read, but has no checksum."""


class FailedFigureWarning(UserWarning):
    """A figure of a report could not be drawn; the command line ends with exit code 1."""


# Not a UserError: nobody made a mistake, the trial has a result, and its run goes on.
class DivergedError(Exception):
    """Training produced a non-finite loss; the trial ends with status `diverged`."""


def spell_settings(message: object, spell: Callable[[str], str] = str) -> str:
    """Spell the settings that a message names, e.g. as ``--guard``; by default as plain words."""
    return _SETTING.sub(lambda named: spell(named[1]), str(message))


def find_cause(message: object) -> str:
    """Return the cause from a traceback or the message of a library in one line, without advice."""
    lines = str(message).strip().splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    if frames:  # the error follows the indented code of the last one
        lines = list(dropwhile(lambda line: line.startswith(" "), lines[frames[-1] :]))
    # Ray lists the properties of an actor in lines that begin with a tab.
    text = " ".join(" ".join(line for line in lines if line[:1] != "\t").split())
    text = _ADVICE.split(text)[0].rstrip(" .")
    if len(text) > _LONGEST:  # an error of a network ends with its cause
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return text


@contextmanager
def reading(path: Path, damage: str, way: str) -> Iterator[None]:
    """Describe the errors of a library that reads a file in one line: ``<path> <damage>; <way>``.

    Raises:
        PermissionError: This user may not read the file, which may be whole.
        DamagedFileError: Any other error.
    """
    try:
        yield
    except (UserError, MemoryError, PermissionError):
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DamagedFileError(f"{path} {damage} ({reason}); {way}") from None


def describe_os_error(error: OSError) -> str | None:
    """Describe an error of a path or a disk, with a hint; None for others, which are defects."""
    if error.filename is None and error.errno not in _OF_DISKS:
        return None
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return f"cannot write: {error.strerror}; {WAY_OUT}"
    return f"cannot use {os.fsdecode(error.filename)}: {error.strerror}; {WAY_OUT}"


def locate_error(
    error: BaseException, is_own: Callable[[str], bool] | None = None, elsewhere: str = ""
) -> str:
    """Describe an error in one line, after the innermost line in the user's files that it is from.

    By default, these are all files but those of packages, and are named without their folders;
    ``elsewhere`` stands for an error from no such file. The kind of error is named unless it is a
    UserError.
    """
    place, text = elsewhere, " ".join(str(error).split())
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename and is_own and is_own(error.filename):
        # The file was never run, so it has no frame; the error's text repeats the line.
        lines.append((error.filename, error.lineno))
        text = error.msg
    for file, line in lines:
        if is_own is None and "site-packages" not in file:
            place = f"{Path(file).name} line {line}"
        elif is_own is not None and is_own(file):
            place = f"{file} line {line}"
    kind = "" if isinstance(error, UserError) else type(error).__name__
    return ": ".join(filter(None, (place, kind, text)))
