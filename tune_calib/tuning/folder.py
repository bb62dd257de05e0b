"""Folders and cluster of a run, the lock of its driver, and checks of existing results."""

import contextlib
import json
import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tune_calib.errors import UserError
from tune_calib.files.documents import hash_text
from tune_calib.files.paths import AnyPath, lock_file, parse_path
from tune_calib.results.tables import read_table
from tune_calib.spec.names import IN_PROCESS, PROGRESS
from tune_calib.spec.request import AblateRequest, CompareRequest, SearchRequest
from tune_calib.spec.resolve import default_folder
from tune_calib.tuning.work.provenance import Provenance

LOCK = ".driver.lock"
PROFILES = "profiles"  # folder with the profile of an epoch of each network


@dataclass(frozen=True)
class RunLocation:
    """Folders, cluster and GPUs of a run; none of them changes its identity."""

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
    among: AnyPath | None = None  # the folders ``AMONG/*/*`` may contain rows of the same trials

    @classmethod
    def of_request(
        cls,
        request: AblateRequest | CompareRequest | SearchRequest,
        command: str,
        among: AnyPath | None = None,
    ) -> "RunLocation":
        out = parse_path(default_folder(request))
        return cls(
            out=out,
            store=parse_path(request.store) if request.store else out / "store",
            data_root=request.data_root,
            address=request.address,
            gpus=0.0 if request.gpus == "auto" else request.gpus,
            chooses_gpus=request.gpus == "auto",
            command=command,
            profile=not isinstance(request, SearchRequest) and request.profile,
            dataset_title=request.dataset_title or request.imported,
            study_storage=request.study_storage if isinstance(request, SearchRequest) else None,
            among=among,
        )

    def build_provenance(self, **of_run: Any) -> Provenance:
        """Build the provenance of trials: what workers need of the location, and of their run."""
        device = "cuda" if self.gpus else "cpu"
        # The paths are absolute, since workers have other working directories.
        return Provenance(
            out=str(self.out.resolve()),
            store=str(self.store.resolve()),
            data_root=self.absolute_data_root,
            device=device,
            gpus=self.gpus,
            profile=self.profile,
            channel=uuid.uuid4().hex,
            **of_run,
        )

    @property
    def absolute_data_root(self) -> str | None:
        return None if self.data_root is None else str(self.data_root.resolve())

    @property
    def uses_ray(self) -> bool:
        return self.address != IN_PROCESS

    def at_once(self, threads: int = 1) -> int:
        """Return how many trials run in parallel on this machine; one without Ray."""
        from tune_calib.engine.machine import count_cores  # imports torch, which is slow

        return max(1, count_cores() // threads) if self.uses_ray else 1


@dataclass(frozen=True)
class Result:
    crashed: list[str]  # a line for each job that crashed
    stopped: str = ""  # what a limit of time left undone, in words; "" if nothing


@contextlib.contextmanager
def only_driver(out: AnyPath) -> Iterator[None]:
    """Lock a folder, so that it has a single driver."""
    try:
        with FileLock(lock_file(out, LOCK), timeout=0):
            yield
    except Timeout:
        raise UserError(f"another tune-calib is running on {out}; wait for it or stop it") from None


def done(out: AnyPath) -> set[str]:
    rows = read_table(out, "trials", columns=["spec_hash"])
    return set(rows["spec_hash"].to_pylist())


def spent_s(out: AnyPath) -> float:
    """Return the total seconds of the Ray trials of a folder."""
    rows = read_table(out, "trials", columns=["wall_s", "population"]).to_pylist()
    # Each row contains the seconds of its whole head batch.
    return math.fsum(row["wall_s"] / row["population"] for row in rows)


def hash_request(request: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits of a request, given as plain JSON values."""
    text = json.dumps(request, sort_keys=True)
    return hash_text(text)[:16]


def refuse_foreign(out: AnyPath, *damaged: str) -> None:
    """Refuse a folder with anything but artifacts and the named files of a damaged run."""
    if not out.exists():
        return
    parts = ("store", "plugins", LOCK, PROGRESS, *damaged)
    for path in out.iterdir():
        if path.name not in parts:
            raise UserError(
                f"{out} contains {path.name}, which is not part of a run; name an empty folder",
                setting="out",
            )


def build_foreign_error(out: AnyPath, what: str, command: str, why: str = "") -> UserError:
    return UserError(
        f"{out} contains another {what} ({command}){why}; name another folder", setting="out"
    )
