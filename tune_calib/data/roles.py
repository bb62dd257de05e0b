"""What an array of a file is to a split or a head, told by its name or by whoever gives it.

A file is given as ``FILE``, whose arrays are known by their names (``ROLES``), as ``ROLE=FILE``, or
as ``ROLE=FILE:KEY``; several make one split.
"""

from collections.abc import Iterator, Mapping, Sequence

from tune_calib.data.arrays import Array, arrays_in
from tune_calib.errors import UserError
from tune_calib.paths import expand_path

ROLES: Mapping[str, tuple[str, ...]] = {
    "logits": ("logits", "logit"),
    "probs": ("probs", "prob", "probabilities"),
    "features": ("features", "feature", "feats", "embeddings"),
    "labels": ("labels", "label", "targets", "target", "y"),
}
"""What a split may hold, and the names by which it is known."""

HEAD_ROLES: Mapping[str, tuple[str, ...]] = {
    "weight": ("weight", "head.weight", "fc.weight", "classifier.weight", "linear.weight"),
    "bias": ("bias", "head.bias", "fc.bias", "classifier.bias", "linear.bias"),
}


def by_role(
    setting: str, files: Sequence[str], roles: Mapping[str, tuple[str, ...]]
) -> dict[str, Array]:
    """Arrays of some files by what they are.

    Args:
        setting: that they were given by, for messages.
        files: as the module says.
        roles: what they may be, and the names by which it is known.

    Raises:
        UserError: two arrays are one thing, one that is named is not there, or holds Python
            objects.
        DamagedFileError: a file cannot be read.
    """
    found: dict[str, Array] = {}
    for text in files:
        for role, array in _named(setting, text, roles):
            if role in found:
                raise UserError(
                    f"{setting}: {found[role].told} and {array.told} are both {role}; name one, "
                    f"e.g. {role}=FILE:KEY"
                )
            array.refuse_objects()
            found[role] = array
    return found


def _named(
    setting: str, text: str, roles: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, Array]]:
    role, equals, rest = text.partition("=")
    if not equals or role not in roles:
        arrays = arrays_in(expand_path(text))
        for known, names in roles.items():
            yield from ((known, arrays[name]) for name in names if name in arrays)
        return
    path, colon, key = rest.rpartition(":")
    if not colon or expand_path(rest).exists():
        path, key = rest, ""
    arrays = arrays_in(expand_path(path))
    if not key and len(arrays) == 1:
        key = next(iter(arrays))
    if key not in arrays:
        what = f"no {key!r}" if key else "several arrays"
        raise UserError(
            f"{setting} {text}: {path} has {what}; it has {', '.join(arrays) or 'none'}: write "
            f"{role}=FILE:KEY"
        )
    yield role, arrays[key]


def names_of(roles: Mapping[str, tuple[str, ...]]) -> str:
    """The names by which arrays are known, for messages."""
    told = "; ".join("/".join(names) for names in roles.values())
    return f"arrays are known by these names: {told}; others by ROLE=FILE:KEY"
