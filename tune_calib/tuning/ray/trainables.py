"""Ray Tune Trainables: thin wrappers of the engine in reusable actors, which send their events.

``trainable("mac_cal")`` returns the class of a method, for use in any ``tune.Tuner``::

    tune.Tuner(
        trainable("mac_cal"),
        param_space={
            "head": {"gamma": tune.uniform(0.7, 1.0)},
            "run": {"out": "/tmp/own/results", "store": "/tmp/own/store"},
        },
    )

The configuration has the slots ``data``, ``network``, ``head`` and ``posthoc``, with the settings
of a method beside those of its slot or in ``params``; ``recipe`` (a name; by default the quick
recipe of the data set); ``own_recipes`` (train each method as its authors do); and ``run``
(``folder.Provenance``). Other settings have the defaults of the command line.
"""

import contextlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from ray import tune
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from tune_calib.engine.machine import set_cores
from tune_calib.errors import RefusedError
from tune_calib.files.paths import parse_path
from tune_calib.progress import ProgressEvent, listening
from tune_calib.spec import plugins
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import SLOTS
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.settings import resolve_spec
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.work.executor import DONE
from tune_calib.tuning.work.worker import Worker
from tune_calib.tuning.work.workers import begin_job

# Events pass through the key-value store of the Ray cluster, so that they need no file and no
# actor. It has no public interface (Ray 2.59 and 2.60); if it fails, the view only shows less.
REFUSED = "refused"  # key of the last report of a trial that refuses the whole run
_PREFIX = "tune_calib/events"
_SEND_EVERY_S = 0.5


class JobTrainable(tune.Trainable):
    """Executes jobs of a run, of any kind; consecutive ones of the same kind share a worker."""

    worker: Worker | None = None

    def setup(self, config: dict[str, Any]) -> None:
        self.sender = EventSender()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take another job; its first step begins it, since Ray shows only trials it has taken."""
        self.sender.key = _key(new_config["run"]["channel"], new_config["job"]["name"])
        self.next: dict[str, Any] | None = new_config
        return True

    def step(self) -> dict[str, Any]:
        """Run a step of the job, and report what is not to be retried, as Ray retries crashes."""
        try:
            with listening(self.sender.receive):
                if self.next is not None:
                    config, self.next = self.next, None
                    # Set for each job, since a reused actor may have executed one with more cores.
                    set_cores(config["job"].get("cores", 1))
                    self.worker = begin_job(config, self.worker)
                return self.opened_worker.step()
        except RefusedError as error:
            self.cleanup()
            return {REFUSED: str(error), DONE: True}

    @property
    def opened_worker(self) -> Worker:
        assert self.worker is not None
        return self.worker

    def cleanup(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.cleanup()


class MethodTrainable(JobTrainable):
    """Executes a trial of a method, for your own ``Tuner``; see ``trainable``."""

    method: ClassVar[str]
    plugins: ClassVar[Sequence[Plugin]]

    def setup(self, config: dict[str, Any]) -> None:
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        run = new_config["run"]
        used = [*self.plugins, *(Plugin(**plain) for plain in run.get("plugins", ()))]
        # Before any registry is read; the process may have used others before.
        plugins.use(used)
        spec = resolve_trial(self.method, new_config)
        kind = "head" if METHODS[self.method].kind == "head" else "network"
        job = {
            "name": self.trial_id,
            "kind": kind,
            "trials": [PlannedTrial(spec, 0, self.method).plain()],
        }
        run = {**run, "plugins": list(map(Plugin.plain, used))}
        self.worker = begin_job({**new_config, "run": run, "job": job}, self.worker)
        return True

    def step(self) -> dict[str, Any]:
        return self.opened_worker.step()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self.opened_worker.save_checkpoint(checkpoint_dir)

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.opened_worker.load_checkpoint(checkpoint)


def resolve_trial(method: str, config: Mapping[str, Any]) -> TrialSpec:
    """Resolve the trial of a method from the configuration of its Trainable."""
    slots = {name: dict(config[name]) for name in SLOTS if config.get(name) is not None}
    slots.setdefault(METHODS[method].kind, {})["method"] = method
    request = ResolvedRequest(slots).with_recipe(config.get("recipe"))
    if run := config.get("run"):
        root = Path(run["data_root"]) if run.get("data_root") else None
        request = resolve_files(request, root, parse_path(run["store"]))
    return resolve_spec(request.overrides, request.recipe, config.get("own_recipes", False))


def trainable(name: str) -> type[MethodTrainable]:
    """Return the Trainable of a method, e.g. ``MacCalTrainable``.

    A post-hoc method follows the network's own head; to use it after another head, set the
    ``posthoc`` slot in the configuration of that head's class.

    Args:
        name: A name of the method registry.

    Raises:
        UserError: The method is unknown.
    """
    title = "".join(map(str.capitalize, name.split("_"))) + "Trainable"
    attributes = {"method": name, "plugins": plugins.in_use(), "__doc__": METHODS[name].title}
    return type(title, (MethodTrainable,), attributes)


class EventSender:
    """Sends the latest event of a Ray trial to the driver, in a thread that delays no trial."""

    key: bytes
    latest: tuple[bytes, ProgressEvent] | None = None

    def __init__(self) -> None:
        threading.Thread(target=self._send, daemon=True, name="tune-calib events").start()

    def receive(self, event: ProgressEvent) -> None:
        self.latest = self.key, event

    def _send(self) -> None:
        sent = None
        while True:
            time.sleep(_SEND_EVERY_S)
            latest = self.latest
            if latest is None or latest is sent:
                continue
            # No result depends on events, and the store may end before the worker.
            with contextlib.suppress(Exception):
                _internal_kv_put(latest[0], json.dumps(asdict(latest[1])).encode())
                sent = latest


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
