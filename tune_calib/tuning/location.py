"""Where a run takes place: its folders, its cluster and its GPUs."""

import os
from dataclasses import dataclass
from pathlib import Path

from tune_calib.paths import AnyPath, parse_path
from tune_calib.spec.names import IN_PROCESS
from tune_calib.spec.request import AblateRequest, CompareRequest, LadderRequest, SearchRequest
from tune_calib.spec.resolve import default_folder


@dataclass(frozen=True)
class RunLocation:
    """Folders, cluster and GPUs of a run; none of them changes its identity.

    Attributes:
        store: folder of the artifacts.
        address: of a Ray cluster; None for a Ray of this machine, ``IN_PROCESS`` for no Ray.
        gpus: GPUs of a Ray trial, 0, 1 or 1/k.
        command: repeats the run.
        profile: networks write where the time of an epoch went.
        among: folder whose run folders ``AMONG/*/*`` may hold finished rows of the same trials.
    """

    out: AnyPath
    store: AnyPath
    data_root: Path | None = None
    address: str | None = None
    gpus: float = 0.0
    command: str = ""
    profile: bool = False
    among: AnyPath | None = None

    @classmethod
    def of_request(
        cls, request: AblateRequest | CompareRequest | SearchRequest, command: str
    ) -> "RunLocation":
        """Return the location that a request names, with its default folders."""
        out = parse_path(default_folder(request))
        return cls(
            out=out,
            store=parse_path(request.store) if request.store else out / "store",
            data_root=request.data_root,
            address=request.address,
            gpus=request.gpus,
            command=command,
            profile=isinstance(request, LadderRequest) and request.profile,
        )

    @property
    def uses_ray(self) -> bool:
        """Return whether Ray executes the trials, and not this process."""
        return self.address != IN_PROCESS

    def at_once(self, threads: int = 1) -> int:
        """Return how many trials run side by side on this machine; one without Ray."""
        return max(1, (os.cpu_count() or 1) // threads) if self.uses_ray else 1
