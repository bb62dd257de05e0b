"""Send the progress events of Ray trials from their workers, on any node, to the driver.

They pass through the key-value store of the Ray cluster, so that they need no file and no actor. It
has no public interface (Ray 2.59 and 2.60); if it fails, the view only shows less. A thread sends
one event per half second at most, so that training waits for none.
"""

import contextlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from tune_calib.progress import ProgressEvent, add_listener

_PREFIX = "tune_calib/board"
_SEND_EVERY_S = 0.5

_key_of_trial = b""  # the key of the Ray trial of this process; empty until one is sent
_latest: ProgressEvent | None = None  # of this Ray trial


def send_events(channel: str, name: str) -> None:
    """Send the events of this process as those of a Ray trial, unless the channel is empty."""
    global _key_of_trial, _latest
    if not channel:
        return
    is_new = not _key_of_trial
    _key_of_trial, _latest = _key(channel, name), None
    if is_new:
        add_listener(_receive)
        threading.Thread(target=_send, daemon=True, name="tune-calib events").start()


def _receive(event: ProgressEvent) -> None:
    global _latest
    _latest = event


def _send() -> None:
    sent = None
    while True:
        time.sleep(_SEND_EVERY_S)
        key, event = _key_of_trial, _latest
        if event is None or event is sent:
            continue
        # No result depends on events, and the store may end before the worker.
        with contextlib.suppress(Exception):
            _internal_kv_put(key, json.dumps(asdict(event)).encode())
            sent = event


def read_events(channel: str, names: Sequence[str]) -> Mapping[str, ProgressEvent]:
    """Return the latest event of each named Ray trial that has sent one."""
    events = {}
    for name in names:
        with contextlib.suppress(Exception):  # as above
            if (plain := _internal_kv_get(_key(channel, name))) is not None:
                events[name] = ProgressEvent(**json.loads(plain))
    return events


def clear_events(channel: str) -> None:
    """Remove all events of a channel from the cluster, which others use too."""
    with contextlib.suppress(Exception):  # as above
        _internal_kv_del(_key(channel, ""), del_by_prefix=True)


def _key(channel: str, name: str) -> bytes:
    return f"{_PREFIX}/{channel}/{name}".encode()
