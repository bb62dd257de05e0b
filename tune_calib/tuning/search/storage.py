"""The storage of an Optuna study: a journal file by default, a database by URL."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend

from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, expand_path, refuse_link, refuse_special
from tune_calib.spec.names import JOURNAL
from tune_calib.text import STARS, mask_url, mask_urls

MOUNTS = Path("/proc/self/mounts")
NETWORK_FILE_SYSTEMS = re.compile(
    r"(fuse\.)?(nfs4?|cifs|smb3|smbfs|lustre|gpfs|beegfs|ceph|afs|9p|panfs|glusterfs|sshfs|s3fs)"
)


def open_storage(url: str | None, out: AnyPath, is_read_only: bool = False) -> BaseStorage:
    """Open the storage of a study: a database, or without a URL a journal file in its folder.

    A journal has one driver, and its readers do not even mend it.
    """
    if url is None:
        path = journal_file(out)
        if not is_read_only:
            _mend(path)
        elif not path.exists():
            raise UserError(f"{out} holds no {JOURNAL}, the study of its search")
        try:
            return JournalStorage(_Journal(path))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{path} is damaged; move it away and run the search again: what has a result is "
                "not done again"
            ) from None
    _refuse_shared_sqlite(url)
    from optuna.storages import RDBStorage

    try:
        return RDBStorage(url, skip_table_creation=is_read_only)
    except _database_errors(ImportError, ValueError, RuntimeError) as error:
        raise UserError(
            f"cannot open `study_storage` {mask_url(url)}: {_reason(error, url)}"
        ) from None


def journal_file(out: AnyPath) -> Path:
    """Return the journal file of a study without a database."""
    if not isinstance(out, Path):
        raise UserError(
            f"{out} cannot hold the journal file of a study; name a database by `study_storage` URL"
        )
    path = out / JOURNAL
    refuse_link(path)
    refuse_special(path)
    return path


def _database_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the exceptions of a database, and others; only called when something is raised."""
    # Slow to import, and most searches need no database.
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError, StorageInternalError, *others


@contextlib.contextmanager
def lost_database(url: str | None) -> Iterator[None]:
    """Report in one line a database that stops answering while the block runs."""
    try:
        yield
    except _database_errors() as error:
        raise UserError(
            f"{mask_url(url or JOURNAL)} does not answer any more "
            f"({_reason(error, url or JOURNAL)}); nothing that ended is lost: when it is back, run "
            "the same command again",
            setting="study_storage",
        ) from None


def _reason(error: Exception, url: str) -> str:
    """Return the first line of an error of a database, without the secrets of its URL."""
    masked = mask_url(url)
    if masked.endswith(f"://{STARS}"):  # any word of the message may be a part of the password
        return "in user name and password, write : as %3A, / as %2F, ? as %3F and @ as %40"
    return mask_urls(str(error).strip().splitlines()[0].replace(url, masked))


def find_storage(out: AnyPath, url: str | None, recorded: str | None) -> str | None:
    """Return the URL of a study's database, None for a journal file; the recorded one is masked."""
    if url is not None or recorded is None:
        return url or recorded
    where = f"the study of {out} lies in {mask_url(recorded)}"
    if STARS in recorded:
        raise UserError(f"{where}: name it with `study_storage` URL")
    # Connecting would create the file, wherever a foreign folder names it.
    scheme, _, rest = recorded.partition(":///")
    file = rest.partition("?")[0]
    if scheme.partition("+")[0] == "sqlite" and not expand_path(file or ".").is_file():
        raise UserError(f"{where}, which is not there: name it with `study_storage` URL")
    return recorded


class _Journal(JournalFileBackend):
    """A journal of one writer, without a lock and an fsync a line (10 times as fast).

    A killed process loses nothing of what it wrote. What a power cut takes from the end is
    suggested again, since the sampler's seed depends on the number of the suggestion alone.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append in one write, so that a reader sees whole lines."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._path.open("ab", buffering=0) as file:
            file.write(lines.encode())


def _mend(path: Path) -> None:
    """Remove the lock of a killed driver, and a line that it did not finish."""
    Path(f"{path}.lock").unlink(missing_ok=True)
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def _refuse_shared_sqlite(url: str) -> None:
    scheme, _, rest = url.partition("://")
    if scheme.partition("+")[0] != "sqlite":
        return
    path = Path(rest.removeprefix("/").partition("?")[0]).resolve()
    if MOUNTS.exists() and is_network_path(path, MOUNTS.read_text()):
        raise UserError(
            f"{mask_url(url)}: SQLite loses data on a network path; leave it out "
            "(a journal file) or name a postgresql:// or mysql:// database",
            setting="study_storage",
        )


def is_network_path(path: Path, mounts: str) -> bool:
    """Return whether a path lies on a network file system."""
    kinds = {}
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split()
        kinds[Path(point.replace("\\040", " "))] = kind
    nearest = next((kinds[p] for p in (path, *path.parents) if p in kinds), "")
    return NETWORK_FILE_SYSTEMS.fullmatch(nearest) is not None
