"""JSON files of the program, with a checksum of their content against damage and edits."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tune_calib.errors import DamagedFileError, UnsealedFileError
from tune_calib.files.hashes import hash_text

CHECKSUM = "checksum"
"""Key of the SHA-256 of all other keys and their values, whatever their order and layout."""


def seal(
    content: Mapping[str, Any], indent: int | None = 1, default: Callable[[Any], Any] | None = None
) -> bytes:
    """Return the text of a JSON file with its checksum, which replaces an earlier one."""
    plain = {name: value for name, value in content.items() if name != CHECKSUM}
    # As it is read: keys are text, and tuples are lists.
    parsed = json.loads(json.dumps(plain, default=default))
    plain[CHECKSUM] = _checksum_of(parsed)
    return f"{json.dumps(plain, indent=indent, default=default)}\n".encode()


def unseal(data: bytes | str, path: object) -> dict[str, Any]:
    """Return the content of a JSON file without its checksum, which is verified.

    Raises:
        DamagedFileError: The file is incomplete, its content was changed, or it has no checksum.
    """
    try:
        content = json.loads(data)
    # Garbage may consist of brackets, which exceed the recursion limit of the parser.
    except (ValueError, RecursionError):
        raise DamagedFileError(f"{path} is incomplete") from None
    if not isinstance(content, dict) or CHECKSUM not in content:
        raise UnsealedFileError(
            f"{path} has no checksum: move it away, and run the command that wrote it again"
        )
    if content.pop(CHECKSUM) != _checksum_of(content):
        raise DamagedFileError(f"{path} was changed after it was written: its checksum differs")
    return content


def _checksum_of(content: dict[str, Any]) -> str:
    return hash_text(json.dumps(content, sort_keys=True, separators=(",", ":")))
