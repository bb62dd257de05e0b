"""The folder of a sweep or a search: one driver, one question, and what is done in it."""

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from filelock import FileLock, Timeout

from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, lock_file
from tune_calib.results import plugin_folders
from tune_calib.results.manifests import SweepManifest
from tune_calib.results.tables import read_table
from tune_calib.spec.names import PROGRESS

LOCK = ".driver.lock"


@contextlib.contextmanager
def only_driver(out: AnyPath) -> Iterator[None]:
    """Be the only driver of a folder.

    Raises:
        UserError: another one is at work.
    """
    try:
        with FileLock(lock_file(out, LOCK), timeout=0):
            yield
    except Timeout:
        raise UserError(f"another tune-calib is running on {out}; wait for it or stop it") from None


def done(out: AnyPath) -> set[str]:
    """Spec hashes of which a result row is on disk."""
    rows = read_table(out, "trials", keep={"spec_hash"}.__contains__)
    return set(rows["spec_hash"].to_pylist())


def spent_s(out: AnyPath) -> float:
    """Seconds that the Ray trials of a folder took, one after the other."""
    # Each row of a population has the seconds of all of it.
    rows = read_table(out, "trials").select(["wall_s", "population"]).to_pylist()
    return math.fsum(row["wall_s"] / row["population"] for row in rows)


def refuse_mended(out: AnyPath) -> None:
    """Refuse to mix heads with those that an earlier version evaluated otherwise.

    It reported another head than the one that ``select`` had chosen where masks are part of it,
    and drew the noise of V-TST and the masks of ``mc`` in another way.

    Raises:
        UserError: the folder holds such heads.
    """
    names = ("head", "rung_label", "processor")
    rows = read_table(out, "trials", keep=lambda name: name in names).to_pylist()
    for row in rows:
        if is_mended(row):
            raise UserError(
                f"`out` {out} holds heads of {row['rung_label']!r} that an earlier version "
                "evaluated otherwise; report still reads them, but to go on name another `out`"
            )


def is_mended(row: Mapping[str, Any]) -> bool:
    """Return whether a row is of a head that this version evaluates otherwise.

    Args:
        row: its columns ``processor`` and ``head``.
    """
    if row.get("processor") is not None or not row["head"]:
        return False
    head = json.loads(row["head"])
    evaluation = head.get("params", {}).get("evaluation")
    if head.get("method") == "mac_cal":
        is_chosen = head.get("select") != "last"
        return evaluation == "mc" or (is_chosen and evaluation in ("expected", "last_mask"))
    return bool(head.get("method") == "vtst" and evaluation == "mc")


def identity_of(question: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of what was asked, as plain JSON values."""
    text = json.dumps(question, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def refuse_foreign(out: AnyPath, *own: str) -> None:
    """Refuse a folder that holds something else than artifacts.

    Args:
        out: the folder.
        own: names that a damaged sweep or search leaves.

    Raises:
        UserError: it does.
    """
    names = [path.name for path in out.iterdir()] if out.exists() else []
    known = ("store", plugin_folders.FOLDER, LOCK, PROGRESS, *own)
    foreign = [name for name in names if name not in known]
    if foreign:
        raise UserError(f"`out` {out} holds {foreign[0]} and no sweep; name an empty folder")


def other_recipe(old: SweepManifest, new: SweepManifest) -> str:
    """Why a folder holds another sweep, as far as the recipe tells; or nothing.

    Another version of the program may have another quick setting.
    """
    before, now = old.recipe, new.recipe
    if before is not None and now is not None and before.name != now.name:
        return f": by recipe {before.name}, not {now.name}"
    is_same = (old.dataset, old.ladder, old.command) == (new.dataset, new.ladder, new.command)
    changed = before is not None and now is not None and before.settings != now.settings
    if is_same or changed:
        return (
            f": the recipe ({now.name if now else 'none'}) of {new.dataset} was another one when "
            "it began, and its trials cannot be mixed with new ones; report still reads it"
        )
    return ""


def holds_another(out: AnyPath, what: str, command: str, why: str = "") -> UserError:
    """The error of a folder in which another question was asked, by some command."""
    return UserError(f"`out` {out} holds another {what} ({command}){why}; name another folder")
