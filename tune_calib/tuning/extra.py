"""Extra evaluations of finished trials: on shift sets, and for bootstrap intervals.

They are part of no hash and no identity, so that they can be added later.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from tune_calib.engine.extra import shifted_bank_key
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import column
from tune_calib.tuning.ray.plan import RayTrial, format_rungs

TOGETHER = 64
"""Maximum trials per Ray trial, so that evaluations of one network can run in parallel."""

_TEST_COLUMNS = tuple(column("test", name) for name in ("accuracy", "ece"))

Measured = Mapping[str, float]  # metrics on ``test`` in the row of a trial


@dataclass(frozen=True)
class ExtraEvaluations:
    """The requested extra evaluations."""

    shift: tuple[str, ...] = ()  # as in ``data.shift``
    bootstrap: int = 0  # draws of the samples of test and of shift sets


@dataclass(frozen=True)
class ExtraTrial(RayTrial):
    """Extra evaluations of finished trials of one network, as a Ray trial."""

    measured: tuple[Measured, ...] = ()  # of each trial
    shift: str | None = None  # a shift set; None for bootstrap intervals on ``test``
    resamples: int = 0  # draws of the samples; may be 0 on a shift set

    @property
    def kind(self) -> str:
        """Return the kind of worker that executes it: ``extra``."""
        return "extra"

    def config(self) -> dict[str, Any]:
        """Return the configuration of its worker as plain JSON values."""
        extra = {"shift": self.shift, "resamples": self.resamples}
        return {**super().config(), **extra, "measured": [dict(each) for each in self.measured]}


def find_extra_trials(
    extra: ExtraEvaluations, sets: Sequence[str], planned: Sequence[PlannedTrial], out: AnyPath
) -> list[ExtraTrial]:
    """Find the missing extra evaluations of finished trials, with shift sets by name."""
    if not sets and not extra.bootstrap:
        return []
    names = {"spec_hash", "status", *_TEST_COLUMNS}
    finished: dict[str, Measured] = {
        row["spec_hash"]: {name: row[name] for name in _TEST_COLUMNS}
        for row in read_table(out, "trials", columns=names).to_pylist()
        if row["status"] == "done" and row.get(_TEST_COLUMNS[0]) is not None
    }
    trials = [(t, finished[t.spec.hash]) for t in planned if t.spec.hash in finished]
    found = []
    if sets:
        table = read_table(out, "shifts", columns=["spec_hash", "set", "resamples"])
        is_drawn = pc.greater_equal(pc.fill_null(table["resamples"], 0), extra.bootstrap)
        pairs = table.filter(is_drawn).group_by(["spec_hash", "set"]).aggregate([]).to_pylist()
        # A set may consist of parts, such as the severities of a corruption.
        evaluated = {(row["spec_hash"], "/".join(row["set"].split("/")[:2])) for row in pairs}
        for name in sets:
            left = [each for each in trials if (each[0].spec.hash, name) not in evaluated]
            found += group_extra_trials(left, name, extra.bootstrap)
    if extra.bootstrap:
        table = read_table(out, "intervals", columns=["spec_hash", "resamples"])
        drawn = table.filter(pc.equal(table["resamples"], extra.bootstrap))["spec_hash"]
        hashes = set(drawn.to_pylist())
        left = [each for each in trials if each[0].spec.hash not in hashes]
        found += group_extra_trials(left, None, extra.bootstrap)
    # By network, since consecutive trials of a Ray actor share an open network.
    return sorted(found, key=lambda each: each.network_id)


def group_extra_trials(
    trials: Iterable[tuple[PlannedTrial, Measured]], shift: str | None, resamples: int = 0
) -> list[ExtraTrial]:
    """Group trials that are evaluated on the same features into Ray trials."""
    groups: dict[str, list[tuple[PlannedTrial, Measured]]] = {}
    for trial in trials:
        groups.setdefault(shifted_bank_key(trial[0].spec).identity, []).append(trial)
    what = shift or f"bootstrap/{resamples}"
    found = []
    for group in groups.values():
        for start in range(0, len(group), TOGETHER):
            own, measured = zip(*group[start : start + TOGETHER], strict=True)
            hashes = "".join(trial.spec.hash for trial in own)
            found.append(
                ExtraTrial(
                    # The name of its file, which depends only on the specs.
                    f"{what.replace('/', '-')}-{hashlib.sha256(hashes.encode()).hexdigest()[:16]}",
                    own,
                    title=f"{what}: {format_rungs(own)}",
                    measured=measured,
                    shift=shift,
                    resamples=resamples,
                )
            )
    return found
