"""The storage of an Optuna study: a journal file by default, a database by URL."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend

from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, expand_path
from tune_calib.spec.names import JOURNAL
from tune_calib.text import STARS, mask_url, mask_urls


def open_storage(url: str | None, out: AnyPath, is_read_only: bool = False) -> BaseStorage:
    """Open the storage of a study: a database, or without a URL a journal file in its folder."""
    if url is None:
        path = journal_file(out)
        if not is_read_only:
            # A killed driver may have left its lock and an unfinished line.
            Path(f"{path}.lock").unlink(missing_ok=True)
            content = path.read_bytes() if path.exists() else b""
            if content and not content.endswith(b"\n"):
                os.truncate(path, content.rfind(b"\n") + 1)
        elif not path.exists():
            raise UserError(f"{out} contains no {JOURNAL}, the study of its search")
        try:
            return JournalStorage(_Journal(path))
        except OSError:
            raise
        except Exception:  # Optuna raises any exception for lines that it did not write
            raise UserError(
                f"{path} is damaged; move it away and run the search again: trials with a result "
                "are skipped"
            ) from None
    from optuna.storages import RDBStorage

    try:
        return RDBStorage(url, skip_table_creation=is_read_only)
    except Exception as error:  # of a driver, a server, a damaged file, or a mistyped URL
        raise UserError(
            f"cannot open `study_storage` {mask_url(url)}: {_reason(error, url)}"
        ) from None


def journal_file(out: AnyPath) -> Path:
    if not isinstance(out, Path):
        raise UserError(
            f"{out} cannot contain the journal file of a study; name a database as `study_storage`"
        )
    return out / JOURNAL


@contextlib.contextmanager
def lost_database(url: str | None) -> Iterator[None]:
    """Report a database that stops responding in the block in one line."""
    try:
        yield
    except Exception as error:
        if url is None:
            raise
        from sqlalchemy.exc import SQLAlchemyError  # slow, and most searches need no database

        if not isinstance(error, SQLAlchemyError | StorageInternalError):
            raise
        raise UserError(
            f"{mask_url(url)} no longer responds ({_reason(error, url)}); no finished trial is "
            "lost: when it is back, run the same command again",
            setting="study_storage",
        ) from None


def _reason(error: Exception, url: str) -> str:
    masked = mask_url(url)
    if masked.endswith(f"://{STARS}"):  # any word may be part of the password
        return "write : / ? @ in the user name and password as %3A %2F %3F %40"
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    lines = [*str(cause or error).strip().splitlines(), type(error).__name__]
    return mask_urls(lines[0].replace(url, masked))


def find_storage(out: AnyPath, url: str | None, recorded: str | None) -> str | None:
    """Return the URL of a study's database, None for a journal; the recorded URL is masked."""
    if url is not None or recorded is None:
        return url or recorded
    where = f"the study of {out} is stored in {mask_url(recorded)}"
    if STARS in recorded:
        raise UserError(f"{where}; give its URL as `study_storage`")
    # A connection would create the file at any path that a foreign folder names.
    scheme, _, rest = recorded.partition(":///")
    file = rest.partition("?")[0]
    if scheme.partition("+")[0] == "sqlite" and not expand_path(file or ".").is_file():
        raise UserError(f"{where}, which does not exist; give its URL as `study_storage`")
    return recorded


class _Journal(JournalFileBackend):
    """A journal of one writer without a lock and without an fsync per line (10 times as fast).

    A killed process loses nothing that it wrote. Suggestions that a power cut removes are made
    again, since the seed of the sampler depends only on their number.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append in one write, so that readers see whole lines."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        content = lines.encode()
        with self._path.open("ab", buffering=0) as file:
            start = file.tell()
            if file.write(content) != len(content):  # the disk is full
                file.truncate(start)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
