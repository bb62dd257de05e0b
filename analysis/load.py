"""Read the results of a run: its manifest, its tables and the number of missing trials."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from operator import attrgetter
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.shifts import read_shifts
from analysis.text import by_status, format_ended
from tune_calib.files.paths import AnyPath
from tune_calib.results.folders import read_run_manifest
from tune_calib.results.manifests import RungRecord, RunManifest
from tune_calib.results.tables import read_table
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import BASE, column
from tune_calib.spec.names import (
    BELOW,
    FLAT,
    HEAD_BELOW,
    LEAST_SHARPNESS,
    MASK_GONE,
    append_flag_signs,
)

_LONG_TEXTS = ("data", "network", "head", "posthoc", "versions", "code")

T = TypeVar("T")


def cached_per_run(function: Callable[..., T]) -> Callable[..., T]:
    """Cache the value of a function by run and arguments; callers must not modify it."""

    @wraps(function)
    def call(run: "Run", *args: Any, **named: Any) -> T:
        key = (function.__qualname__, args, tuple(named.items()))
        if key not in run._cache:
            run._cache[key] = function(run, *args, **named)
        value: T = run._cache[key]
        return value

    return call


@dataclass(frozen=True, eq=False)
class Run:
    """The results of a run, and the options of its tables."""

    out: AnyPath
    manifest: RunManifest
    trials: pd.DataFrame  # one row per planned trial with a result; metrics are fractions
    # The same of the trials on subsets of calib, for a learning curve, which ``trials`` and the
    # plan of ``manifest`` leave out.
    subsets: pd.DataFrame = field(default_factory=pd.DataFrame)
    planned_subsets: frozenset[str] = frozenset()
    # Running train accuracies of unmasked heads by network, as measured in other runs.
    views: Mapping[str, float] = field(default_factory=dict)
    shows_network_check: bool = False  # whether its table has the columns of the network check
    shown: tuple[str, ...] = ()  # metrics of its table; the usual ones if empty
    shows_intervals: bool = False  # whether its table has intervals over the test samples
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    # The long tables are read on first use, since ranks and tests only need the trials. Curves stay
    # in Arrow, since those of thousands of trials take gigabytes in pandas.
    @cached_property
    def _curves(self) -> pa.Table:
        return read_table(self.out, "curves", encoded=("spec_hash", "name"))

    @cached_per_run
    def recorded(self, name: str) -> pd.DataFrame:
        """Return one recorded quantity of all trials with the columns spec_hash, epoch, value."""
        # One chunk at a time, since the names of all rows as strings are as large as the table.
        chunks = self._curves["name"].chunks
        masks = [pc.equal(chunk.cast(pa.string()), name) for chunk in chunks]
        rows = self._curves.filter(pa.chunked_array(masks, pa.bool_())).drop_columns("name")
        frame: pd.DataFrame = rows.to_pandas()
        return frame.drop_duplicates(["spec_hash", "epoch"])

    @cached_property
    def bins(self) -> pd.DataFrame:
        table = read_table(self.out, "bins", encoded=("spec_hash", "split"))
        rows: pd.DataFrame = table.to_pandas()
        # A trial that was run again has its bins twice.
        return rows.drop_duplicates(["spec_hash", "split", "bin"])

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Return bootstrap intervals over the test samples by spec_hash and metric."""
        names = ["spec_hash", "split", "metric", "lower", "upper", "se", "resamples"]
        rows: pd.DataFrame = read_table(self.out, "intervals", columns=names).to_pandas()
        rows = rows[rows["split"] == "test"].sort_values("resamples", kind="stable")
        key = ["spec_hash", "metric"]
        return rows.drop_duplicates(key, keep="last").set_index(key).drop(columns="split")

    @cached_property
    def splits(self) -> set[str]:
        return {str(name).rpartition("/")[0] for name in self.trials} - {""}

    @cached_property
    def has_one_network(self) -> bool:
        return bool(self.trials.groupby("rung")["network_id"].nunique().max() == 1)

    @cached_property
    def has_groups(self) -> bool:
        return any('"groups":' in str(data) for data in self.trials["data"].unique())

    @property
    def has_imports(self) -> bool:
        return bool(self.manifest.imports)

    def by_import(self) -> Iterator["Run"]:
        setting = f"one of {len(self.manifest.imports)} imports"
        for digest, name in self.manifest.imports.items():
            planned = [record for record in self.manifest.planned if record.imported == digest]
            update = {"planned": planned, "imports": {}, "title": name, "setting": setting}
            is_here = self.trials["spec_hash"].isin({record.spec_hash for record in planned})
            trials = self.trials[is_here].reset_index(drop=True)
            run = replace(self, manifest=self.manifest.model_copy(update=update), trials=trials)
            # The files of the folder are read once.
            bins = self.bins[self.bins["spec_hash"].isin(trials["spec_hash"])]
            vars(run).update(bins=bins, intervals=self.intervals)
            if len(trials):
                yield run

    @property
    def row_name(self) -> str:
        return self.manifest.row_name

    @cached_property
    def rungs(self) -> list[RungRecord]:
        """Return the rungs; the base of a comparison is plain cross entropy, wherever it stands."""
        rungs = list(self.manifest.rungs)
        if base := self._plain:
            for position, rung in enumerate(rungs):
                kind = "base" if rung.index == base.index else "variant"
                rungs[position] = rung.model_copy(update={"kind": kind})
        return rungs

    @property
    def _plain(self) -> RungRecord | None:
        for rung in self.manifest.rungs if self.row_name == "method" else ():
            # A label begins with the pipeline; settings follow it.
            if METHODS.canonical(rung.label.split(" ")[0]) == "ce":
                return rung
        return None

    @cached_property
    def bases(self) -> dict[int, RungRecord]:
        """Return the base of each rung by index: in a ladder, the last one up to the rung."""
        base = self.rungs[0]
        if self.row_name == "method":
            base = next((rung for rung in self.rungs if rung.kind == "base"), base)
        bases = {}
        for rung in self.rungs:
            if rung.kind == "base":
                base = rung
            bases[rung.index] = base
        return bases

    @property
    def base_note(self) -> str:
        """Say that the first method stands in for the base network; empty if it does not."""
        if self.row_name == "rung" or self._plain is not None or not self.rungs:
            return ""
        return f"{self.rungs[0].label}, the first method, since the base network, ce, is not listed"

    @property
    def labels(self) -> dict[int, str]:
        return dict(map(attrgetter("index", "label"), self.rungs))

    @cached_per_run
    def of_rung(self, index: int, done_only: bool = True) -> pd.DataFrame:
        # The rows are sorted by rung, and a slice copies no columns.
        rows = self.done if done_only else self.trials
        first, end = rows["rung"].searchsorted([index, index + 1])
        return rows.iloc[first:end]

    def rungs_in(self, rows: pd.DataFrame) -> list[RungRecord]:
        return [rung for rung in self.rungs if rung.index in set(rows["rung"])]

    def numbers(self, hashes: Iterable[str]) -> list[int]:
        """Count the finished trials with some hashes in each rung that has any."""
        rungs = self.done.loc[self.done["spec_hash"].isin(set(hashes)), "rung"]
        counts = rungs.value_counts()
        return [int(counts[index]) for index in self.labels if index in counts]

    @cached_per_run
    def flags(self, index: int | None = None) -> list[str]:
        rows = self.done if index is None else self.of_rung(index)
        return list(filter(None, rows["flags"].fillna("")))

    @cached_property
    def done(self) -> pd.DataFrame:
        is_done = self.trials["status"] == "done"
        return self.trials if is_done.all() else self.trials[is_done]

    def label(self, rung: RungRecord) -> str:
        return append_flag_signs(rung.label, self.flags(rung.index))

    def failures(self, index: int) -> str:
        counts = self.counts(index)
        if "done" in counts:
            return ""
        planned = sum(counts.values())
        return ", ".join(f"{status} ({count}/{planned})" for status, count in counts.items())

    def ended(self, index: int) -> str:
        return format_ended(self.counts(index))

    @cached_per_run
    def counts(self, index: int | None = None) -> dict[str, int]:
        planned = Counter(map(attrgetter("rung"), self.manifest.planned))
        rows, count = self.trials, planned.total()
        if index is not None:
            rows, count = self.of_rung(index, done_only=False), planned[index]
        counts = Counter(rows["status"])
        counts["missing"] = count - len(rows)
        return by_status(counts)

    def curves_of(self, rung: int, name: str) -> pd.DataFrame:
        curves = self.recorded(name)
        return curves[curves["spec_hash"].isin(self.of_rung(rung)["spec_hash"])]


def load(out: AnyPath) -> Run:
    manifest = read_run_manifest(out)
    trials = read_trials(out)
    planned = [record for record in manifest.planned if record.calib_size is None]
    hashes = {record.spec_hash for record in manifest.planned if record.calib_size is not None}
    subsets = trials[trials["spec_hash"].isin(hashes)].reset_index(drop=True)
    # The manifest decides which trials belong to the run; other rows are ignored.
    is_planned = trials["spec_hash"].isin(map(attrgetter("spec_hash"), planned))
    order = ["rung", "network_seed", "head_seed", "split_seed"]
    trials = trials[is_planned].sort_values(order, ignore_index=True)
    shifts = read_shifts(out)
    if len(shifts.columns):
        trials = trials.merge(shifts, left_on="spec_hash", right_index=True, how="left")
    if hashes:
        manifest = manifest.model_copy(update={"planned": planned})
    run = Run(out, manifest, trials, subsets, frozenset(hashes))
    return _flag_flat_confidences(_flag_gone_masks(run))


def _flag_gone_masks(run: Run) -> Run:
    """Add to ``flags`` the trials of MaC-Cal with q = 1 in the epoch that is evaluated."""
    if not (run.trials["head_method"] == "mac_cal").any():
        return run
    q = run.recorded("q")
    gone = run.trials[["spec_hash", "epoch"]].merge(q[q["value"] >= 1], on=["spec_hash", "epoch"])
    is_gone = run.trials["spec_hash"].isin(gone["spec_hash"])
    flagged = replace(run, trials=_with_flag(run.trials, MASK_GONE, is_gone))
    vars(flagged).update(_curves=run._curves)  # read once
    return flagged


def _flag_flat_confidences(run: Run) -> Run:
    """Add to ``flags`` the trials whose sharpness is far below that of the base of their rung."""
    name = column("test", "sharpness")
    if run.trials.empty or name not in run.trials:
        return run
    sharpness, rungs = run.trials[name].astype(float), run.trials["rung"]
    # Only the base on the same import is comparable.
    imports = run.trials["network_id"] if run.has_imports else rungs * 0
    means = sharpness.groupby([rungs, imports]).mean()
    base_rungs = [run.bases[index].index for index in rungs]
    bases = means.reindex(pd.MultiIndex.from_arrays([base_rungs, imports])).to_numpy()
    is_flat = sharpness < LEAST_SHARPNESS * bases
    return replace(run, trials=_with_flag(run.trials, FLAT, is_flat))


def read_trials(out: AnyPath) -> pd.DataFrame:
    """Return one row per trial, adding to ``flags`` the heads that are far below their network."""
    # Long strings as categories, which store a repeated string once and are shared by copies.
    table = read_table(out, "trials", encoded=_LONG_TEXTS)
    rows: pd.DataFrame = table.to_pandas(self_destruct=True)
    # A trial that was run again may be in two files; the finished one counts.
    done_first = (rows["status"] != "done").sort_values(kind="stable").index
    last = rows["spec_hash"][done_first].drop_duplicates().sort_index().index
    rows = rows.loc[last].reset_index(drop=True)
    gap_se, accuracy = column("test", "confidence_gap_se"), column("test", "accuracy")
    names = [accuracy, gap_se, f"{BASE}/{accuracy}", f"{BASE}/{gap_se}"]
    numbers = rows.reindex(columns=names).astype(float)
    lost = numbers[names[2]] - numbers[accuracy]
    # Rows have the standard error of the confidence gap, which is nearly that of the accuracy.
    errors = numbers[[gap_se, names[3]]].fillna(0.0)
    noise = 2 * (errors**2).sum(axis="columns") ** 0.5
    is_below = rows["head_method"].notna() & (lost > BELOW) & (lost > noise)
    return _with_flag(rows, HEAD_BELOW, is_below)


def _with_flag(rows: pd.DataFrame, name: str, is_raised: "pd.Series[bool]") -> pd.DataFrame:
    flags = rows["flags"].astype(object).fillna("")
    return rows.assign(flags=flags.mask(is_raised, flags + "," + name).str.strip(","))
