"""Where a ladder or a search is carried out."""

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tune_calib.paths import AnyPath, parse_path
from tune_calib.spec.names import IN_PROCESS
from tune_calib.spec.plugins import Plugin
from tune_calib.tuning.ray.rows import Circumstances


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

    @classmethod
    def of(cls, out: str, store: str | None, *where: Any, **further: Any) -> "Site":
        """A site by paths or URLs; artifacts lie in the folder of the results unless named.

        Args:
            out: folder of the results.
            store: folder of the artifacts.
            where: ``data_root`` and what stands behind it.
            further: as ``where``, by name.

        Raises:
            UserError: one is no path and no URL.
        """
        folder = parse_path(out)
        return cls(folder, parse_path(store) if store else folder / "store", *where, **further)

    @property
    def uses_ray(self) -> bool:
        """Whether Ray carries the trials out, and not this process."""
        return self.address != IN_PROCESS

    def at_once(self, threads: int = 1) -> int:
        """Trials side by side on this machine: as many as its cores carry, one without Ray."""
        return max(1, (os.cpu_count() or 1) // threads) if self.uses_ray else 1

    def circumstances(
        self,
        sweep: str,
        ladder: str,
        recipe: str | None = None,
        used: Iterable[Plugin] = (),
        is_search: bool = False,
        digests: Mapping[str, str] = MappingProxyType({}),
    ) -> Circumstances:
        """What every row of the job says of it.

        Args:
            sweep: identity of the question.
            ladder: its name.
            recipe: its name, and what was asked for instead (``ResolvedRequest.recipe_label``).
            used: plug-ins that its trials need.
            is_search: the test split stays shut.
            digests: of its images (``Copies.digests``).
        """
        # Workers stand in folders of their own: paths are absolute there.
        return Circumstances(
            out=str(self.out.resolve()),
            store=str(self.store.resolve()),
            data_root=str(self.data_root.resolve()) if self.data_root else None,
            sweep=sweep,
            ladder=ladder,
            device="cuda" if self.gpus else "cpu",
            is_search=is_search,
            profile=self.profile,
            recipe=recipe,
            board=uuid.uuid4().hex,
            plugins=[plugin.plain() for plugin in used],
            digests=dict(digests),
        )
