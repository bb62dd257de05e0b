"""Folders, cluster and provenance of a run, the lock of its driver, and checks of results."""

import contextlib
import importlib.metadata
import json
import math
import platform
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tune_calib.errors import UserError
from tune_calib.files.documents import hash_text
from tune_calib.files.paths import AnyPath, is_temporary, lock_file, parse_path
from tune_calib.results.manifests import ReplayRecord
from tune_calib.results.tables import read_table
from tune_calib.spec.names import IN_PROCESS, PROGRESS
from tune_calib.spec.request import AblateRequest, CompareRequest, SearchRequest
from tune_calib.spec.resolve import default_folder

LOCK = ".driver.lock"
JOBS = "jobs"  # folder with the jobs of a run that several processes share
PROFILES = "profiles"  # folder with the profile of an epoch of each network
_LIBRARIES = (
    "tune-calib", "torch", "ray", "numpy", "timm", "optuna", "scikit-learn", "pillow", "pyarrow",
)  # fmt: skip


def versions() -> str:
    libraries = dict(zip(_LIBRARIES, map(importlib.metadata.version, _LIBRARIES), strict=True))
    return json.dumps({"python": platform.python_version(), **libraries}, sort_keys=True)


def git_revision() -> str | None:
    """Return the commit of the program, followed by ``+`` if files were changed.

    An installed program has none: the repository around it would be the user's own.
    """
    if {"site-packages", "dist-packages"}.intersection(Path(__file__).parts):
        return None
    options = ["--always", "--abbrev=40", "--exclude=*", "--dirty=+"]  # of `git`
    command = ["git", "-C", str(Path(__file__).parent), "describe", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@dataclass(frozen=True)
class Provenance:
    """The provenance of the trials of a run; only ``device`` affects numbers."""

    out: str
    store: str
    data_root: str | None = None
    sweep: str = ""  # identity of the run
    ladder: str = ""
    device: str = "cpu"
    gpus: float = 1.0  # of a trial, if the device is a GPU
    is_search: bool = False  # the test split is not read
    profile: bool = False  # networks write a profile of an epoch
    plugins: Sequence[dict[str, Any]] = ()  # that workers register, from ``Plugin.plain``
    versions: str = field(default_factory=versions)
    git_revision: str | None = field(default_factory=git_revision)
    recipe: str | None = None  # its name, and the overrides of its settings
    # Path of the table that answers the trials instead, and how; empty if they are trained.
    replay: Mapping[str, str] = field(default_factory=dict)
    channel: str = ""  # of the workers' progress events; empty if they have no reader
    # Of the images that the driver reads, by the canonical JSON of the data slot.
    digests: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Deadline:
    """The end of the hours of a command, after which no trial starts."""

    hours: float | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def time(self) -> float:
        """Return its time on the monotonic clock, in seconds."""
        return self.started + 3600 * (self.hours or math.inf)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.time

    def describe(self, left: str) -> str:
        return f"the time limit of {self.hours:g} h is over: {left} left"


@dataclass(frozen=True)
class RunLocation:
    """Folders, cluster, GPUs and hours of a run; none of them changes its identity."""

    out: AnyPath
    store: AnyPath  # of the artifacts
    data_root: Path | None = None
    address: str | None = None  # of a Ray cluster, or ``IN_PROCESS``; None: this machine
    gpus: float = 0.0  # of a trial, 0, 1 or 1/k
    chooses_gpus: bool = False  # ``gpus=auto``, for which the run chooses as it reads its files
    gpus_reason: str = ""  # for the number that it chose
    command: str = ""  # that repeats the run
    profile: bool = False  # networks write a profile of an epoch
    dataset_title: str | None = None  # of the user's own data
    study_storage: str | None = None  # URL of a database; None for a journal file in the folder
    replay: ReplayRecord | None = None  # the table that answers its trials instead
    is_shared: bool = False  # any number of processes execute its jobs, without Ray
    among: AnyPath | None = None  # the folders ``AMONG/*/*`` may contain rows of the same trials
    deadline: Deadline = field(default_factory=Deadline)

    @classmethod
    def of_request(
        cls,
        request: AblateRequest | CompareRequest | SearchRequest,
        command: str,
        among: AnyPath | None = None,
    ) -> "RunLocation":
        out, study_storage, is_shared = parse_path(default_folder(request)), None, False
        if isinstance(request, SearchRequest):
            study_storage, is_shared = request.study_storage, request.worker
            if is_shared and not isinstance(out, Path):
                raise UserError(
                    f"{out} is a URL; name a folder that all processes of `worker` share", "out"
                )
        return cls(
            out=out,
            store=parse_path(request.store) if request.store else out / "store",
            data_root=request.data_root,
            address=IN_PROCESS if is_shared else request.address,
            gpus=0.0 if request.gpus == "auto" else request.gpus,
            chooses_gpus=request.gpus == "auto",
            command=command,
            profile=not isinstance(request, SearchRequest) and request.profile,
            dataset_title=request.dataset_title or request.imported,
            study_storage=study_storage,
            is_shared=is_shared,
            among=among,
            deadline=Deadline(request.max_hours),
        )

    def build_provenance(self, **of_run: Any) -> Provenance:
        device = "cuda" if self.gpus else "cpu"
        # The paths are absolute, since workers have other working directories.
        return Provenance(
            out=str(self.out.resolve()),
            store=str(self.store.resolve()),
            data_root=self.absolute_data_root,
            device=device,
            gpus=self.gpus,
            profile=self.profile,
            replay=self.replay.location if self.replay else {},
            channel=uuid.uuid4().hex,
            **of_run,
        )

    @property
    def absolute_data_root(self) -> str | None:
        return None if self.data_root is None else str(self.data_root.resolve())

    @property
    def uses_ray(self) -> bool:
        return self.address != IN_PROCESS


@dataclass(frozen=True)
class Result:
    crashed: list[str]  # a line for each job that crashed
    stopped: str = ""  # what a limit of time left undone, in words; "" if nothing
    state: Any = None  # of a search


@contextlib.contextmanager
def only_driver(out: AnyPath, meanwhile: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a folder; if another process does, refuse, or repeat ``meanwhile``."""
    lock = FileLock(lock_file(out, LOCK), timeout=0)
    while not lock.is_locked:
        try:
            lock.acquire()
        except Timeout:
            if meanwhile is None:
                raise UserError(
                    f"another tune-calib is running on {out}; wait for it or stop it"
                ) from None
            meanwhile()
    try:
        yield
    finally:
        lock.release()


def done(out: AnyPath) -> set[str]:
    rows = read_table(out, "trials", columns=["spec_hash"])
    return set(rows["spec_hash"].to_pylist())


def spent_s(out: AnyPath) -> float:
    """Return the total seconds of the Ray trials of a folder."""
    rows = read_table(out, "trials", columns=["wall_s", "population"]).to_pylist()
    # Each row contains the seconds of its whole head batch.
    return math.fsum(row["wall_s"] / row["population"] for row in rows)


def hash_json(content: object) -> str:
    return hash_text(json.dumps(content, sort_keys=True))[:16]


def refuse_foreign(out: AnyPath, *damaged: str) -> None:
    """Refuse a folder with anything but artifacts and the named files of a damaged run."""
    if not out.exists():
        return
    parts = ("store", "plugins", LOCK, PROGRESS, JOBS, *damaged)
    for path in out.iterdir():
        if path.name not in parts and not is_temporary(path):
            raise UserError(
                f"{out} contains {path.name}, which is not part of a run; name an empty folder",
                setting="out",
            )


def build_foreign_error(out: AnyPath, what: str, command: str, why: str = "") -> UserError:
    return UserError(
        f"{out} contains another {what} ({command}){why}; name another folder", setting="out"
    )
