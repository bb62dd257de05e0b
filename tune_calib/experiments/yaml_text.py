"""YAML from a user: a value that JSON can hold, and not larger than its text makes believe."""

import json
from typing import Any

import yaml

from tune_calib.errors import UserError

LARGEST = 100_000
"""Nodes of a document with its aliases unfolded."""


class UnfoldedError(UserError):
    """Aliases unfold to more than any file needs, or into themselves."""


def compose(text: str) -> yaml.Node | None:
    """The nodes of a document; reading it on is then safe.

    Raises:
        yaml.YAMLError: it is not YAML.
        UnfoldedError: it is too large.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            _refuse_large(node)
    except RecursionError:
        raise UnfoldedError("values stand too deep in each other") from None
    return node


def value_of(text: str) -> Any:
    """What a document says.

    Raises:
        yaml.YAMLError: it is not YAML.
        ValueError: it is nothing that JSON can hold.
        UnfoldedError: it is too large.
    """
    compose(text)
    plain = yaml.safe_load(text)
    try:
        json.dumps(plain)
    except TypeError as error:
        raise ValueError(f"{error}; write such a value in quotes") from None
    return plain


def _refuse_large(node: yaml.Node) -> None:
    sizes: dict[int, int | None] = {}

    def size(part: Any) -> int:
        if isinstance(part, tuple):
            return sum(map(size, part))
        if id(part) not in sizes:
            sizes[id(part)] = None  # being counted
            # An alias counts as often as it stands, since ten short lines can unfold to more than a
            # memory holds; but each node is visited once.
            inside = part.value if isinstance(part, yaml.CollectionNode) else ()
            sizes[id(part)] = 1 + sum(map(size, inside))
        known = sizes[id(part)]
        if known is None:
            raise UnfoldedError("an alias stands in what it names")
        return known

    if size(node) > LARGEST:
        raise UnfoldedError(f"with its aliases it unfolds to more than {LARGEST:,} values")
