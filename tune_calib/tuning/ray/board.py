"""What each Ray trial does: written by its worker, read by the driver, whatever node they are on.

It goes through the key-value store that every Ray cluster has, so that it needs no file and no
actor. Nothing public reaches that store (Ray 2.59 and 2.60); where it fails, only the view is less
lively. A thread of its own sends a word a half second at most: training waits for none of them.
"""

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from tune_calib.progress import ProgressEvent, add_listener

_PREFIX = "tune_calib/board"
_SEND_EVERY_S = 0.5


class _Post:
    """Sends what this process does, whenever it has changed."""

    def __init__(self) -> None:
        self._key = b""
        self._said: ProgressEvent | None = None
        self._is_begun = False

    def send_under(self, key: bytes) -> None:
        """Take up another Ray trial."""
        self._key, self._said = key, None
        if not self._is_begun:
            self._is_begun = True
            add_listener(self._hear)
            threading.Thread(target=self._run, daemon=True, name="tune-calib board").start()

    def _hear(self, said: ProgressEvent) -> None:
        self._said = said

    def _run(self) -> None:
        pause, sent = threading.Event(), None
        while not pause.wait(_SEND_EVERY_S):
            key, said = self._key, self._said
            if said is None or said is sent:
                continue
            # Nothing depends on it, and the store may end before the worker does.
            with contextlib.suppress(Exception):
                plain = asdict(replace(said, metrics=dict(said.metrics)))
                _internal_kv_put(key, json.dumps(plain).encode())
                sent = said


_post = _Post()


def tell(board: str, name: str) -> None:
    """From now on, let the driver know what this worker does.

    Args:
        board: of the driver, as ``rows.Provenance`` names it; empty where nobody looks.
        name: of the Ray trial.
    """
    if board:
        _post.send_under(_key(board, name))


def told(board: str, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
    """What Ray trials do, by name; nothing of those that said nothing yet."""
    found = {}
    for name in names:
        with contextlib.suppress(Exception):  # as above
            plain = _internal_kv_get(_key(board, name))
            if plain is not None:
                found[name] = ProgressEvent(**json.loads(plain))
    return found


def clear(board: str) -> None:
    """Leave nothing behind in a cluster that others use too."""
    with contextlib.suppress(Exception):  # as above
        _internal_kv_del(_key(board, ""), del_by_prefix=True)


def _key(board: str, name: str) -> bytes:
    return f"{_PREFIX}/{board}/{name}".encode()
