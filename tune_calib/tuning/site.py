"""Where a ladder or a search is carried out."""

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tune_calib.paths import AnyPath
from tune_calib.spec.names import IN_PROCESS
from tune_calib.spec.plugins import Plugin
from tune_calib.tuning.ray.rows import Provenance


@dataclass(frozen=True)
class Site:
    """Folders, cluster and GPUs of a job; none of them changes what is asked.

    Attributes:
        out: folder of the results.
        store: folder of the artifacts.
        data_root: where data sets lie.
        address: of a Ray cluster; None for a Ray of this machine, ``IN_PROCESS`` for no Ray.
        gpus: GPUs of a Ray trial, 0, 1 or 1/k.
        command: to do the same again.
        profile: whether networks write where the time of an epoch went.
        among: folder in whose results folders finished rows of the same trials are looked for;
            None makes all of them.
    """

    out: AnyPath
    store: AnyPath
    data_root: Path | None = None
    address: str | None = None
    gpus: float = 0.0
    command: str = ""
    profile: bool = False
    among: AnyPath | None = None

    @property
    def uses_ray(self) -> bool:
        """Return whether Ray executes the trials, and not this process."""
        return self.address != IN_PROCESS

    def at_once(self, threads: int = 1) -> int:
        """Return how many trials run side by side on this machine; one without Ray."""
        return max(1, (os.cpu_count() or 1) // threads) if self.uses_ray else 1

    def provenance(
        self,
        sweep: str,
        ladder: str,
        recipe: str | None = None,
        used: Iterable[Plugin] = (),
        is_search: bool = False,
        digests: Mapping[str, str] = MappingProxyType({}),
    ) -> Provenance:
        """Build what every row of the run says about where and how it was computed."""
        # Workers stand in folders of their own: paths are absolute there.
        return Provenance(
            out=str(self.out.resolve()),
            store=str(self.store.resolve()),
            data_root=str(self.data_root.resolve()) if self.data_root else None,
            sweep=sweep,
            ladder=ladder,
            device="cuda" if self.gpus else "cpu",
            is_search=is_search,
            profile=self.profile,
            recipe=recipe,
            channel=uuid.uuid4().hex,
            plugins=[plugin.plain() for plugin in used],
            digests=dict(digests),
        )
