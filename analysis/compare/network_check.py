"""The network check: whether base networks fit the training images and are over-confident.

Methods that lower confidence act differently on a network that is not over-confident, as those of
the papers are. Heads are trained on views of the training images, which a network may not fit
although it fits the images themselves.
"""

import math
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd

from analysis.compare.intervals import over_both
from analysis.load import Run, cached_per_run
from tune_calib.spec.metrics import BASE, METRICS, column, format_value
from tune_calib.text import format_count

PLAIN = "ce"  # the method of the base networks in all papers
UNMASKED = "retrain"  # the head method without masks, whose heads show what a network fits
LEAST_FIT = 0.99
"""Least accuracy of unmasked heads on their views; on networks like the papers' it is higher."""
_percent = METRICS["confidence_gap"].format


@dataclass(frozen=True)
class NetworkCheck:
    """The fit of base networks to train, and their over-confidence; NaN if unknown."""

    method: str  # that trained them; empty if unknown or if there are several
    split: str  # of the confidence gap, ``test`` or, in a search, ``select``
    networks: int
    train: float  # mean accuracy on all training images, clean
    gap: float  # mean confidence gap, with the 95 % interval gap ± half
    half: float
    views: float = math.nan  # running train accuracy of unmasked heads, on the views of all heads

    @property
    def is_recorded(self) -> bool:
        return not math.isnan(self.gap)

    @property
    def fits_views(self) -> bool:
        return not self.views < LEAST_FIT

    @property
    def why_no_verdict(self) -> str:
        """Explain why a paper's claim gets no verdict; empty if it may get one."""
        # Runs without a finished network still get a verdict.
        if not self.is_recorded or self.gap > self.half:
            return ""
        return "the base network is not significantly over-confident"

    @property
    def brief(self) -> str:
        if not self.is_recorded:
            return "whether the base network is over-confident was not recorded"
        fit = ""
        if not math.isnan(self.train):
            fit = f" (accuracy on train {format_value('accuracy', self.train)})"
        if self.why_no_verdict:
            return f"{self.why_no_verdict}, unlike in the papers{fit}"
        return f"the base network is over-confident{fit}"

    @property
    def sentence(self) -> str:
        if not self.is_recorded:
            return "The over-confidence of the base network was not recorded"
        name = f" ({self.method})" if self.method else ""
        fit = f"fits train to {_percent(self.train)} % and"
        if math.isnan(self.train):  # imported data without train
            fit = "(fit to train unknown)"
        half, side = _percent(self.half), "over" if self.gap > 0 else "under"
        confidence = f"{side}-confident by {_percent(abs(self.gap))} ± {half} points"
        if abs(self.gap) <= self.half:
            gap = _percent(self.gap, signed=True)
            confidence = f"not significantly over- or under-confident ({gap} ± {half} points)"
        images = "images" if self.networks == 1 else "images and networks"
        sentence = (
            f"Base network{name} {fit} is {confidence} on {self.split} "
            f"({format_count(self.networks, 'network')}; 95 % bootstrap interval over {images})"
        )
        if self.why_no_verdict:
            sentence += (
                ": results of methods that lower confidence may not carry over to networks that "
                "are over-confident, as in the papers"
            )
        if not self.fits_views:
            sentence += (
                f". Heads without masks fit the views of train that heads see to only "
                f"{_percent(self.views)} %: results of heads may not carry over to networks that "
                "fit them, as in the papers"
            )
        return sentence


@cached_per_run
def compute_network_check(run: Run) -> NetworkCheck:
    """Check the networks of a run with plain cross entropy, otherwise those of its first rung."""
    base_ids = set(base_rows(run)["network_id"])
    networks = known_networks(run.trials)
    check = _compute_check(networks[networks["network_id"].isin(base_ids)], "test")
    if run.trials["head_method"].isna().all():
        return check
    views = {**run.views, **measure_views(run)}
    accuracies = [views[network] for network in base_ids if network in views]
    return replace(check, views=fmean(accuracies) if accuracies else math.nan)


@cached_per_run
def measure_views(run: Run) -> dict[str, float]:
    """Return the running train accuracy of the unmasked head that fits best, by network_id."""
    heads = run.done[run.done["head_method"] == UNMASKED]
    if heads.empty:
        return {}
    curves = run.recorded(column("train", "accuracy")).sort_values("epoch", kind="stable")
    last = curves.drop_duplicates("spec_hash", keep="last").astype({"spec_hash": str})
    accuracies = heads["spec_hash"].map(last.set_index("spec_hash")["value"]).astype(float)
    best: Any = accuracies.groupby(heads["network_id"].astype(str)).max().dropna().to_dict()
    return dict(best)


def explain_rival(run: Run, label: str) -> str:
    """Explain why a claim about one rung and this one gets no verdict; empty if it may get one.

    A smoothing that makes networks more under-confident than plain ones are over-confident is too
    strong for them, so an improvement on it says little about the papers' networks.
    """
    rows = run.trials[run.trials["rung"].map(run.labels) == label]
    rival, base = _compute_check(known_networks(rows), "test"), compute_network_check(run)
    if not rival.gap < -base.gap:
        return ""
    gap = _percent(rival.gap, signed=True)
    return f"{label} ({gap} points) is more under-confident than the base network is over-confident"


def base_rows(run: Run) -> pd.DataFrame:
    """Return the trials of the rung with plain cross entropy, otherwise those of the first rung."""
    rows = run.trials[run.trials["network_method"] == PLAIN]
    # From one rung, since others may train such networks with other settings.
    rows = rows[rows["rung"] == rows["rung"].min()]
    if rows.empty:
        rows = run.of_rung(min(run.labels, default=0), done_only=False)
    return rows


def compute_baseline_check(trials: pd.DataFrame) -> NetworkCheck:
    return _compute_check(known_networks(trials[trials["rung"] < 0], "select"), "select")


def known_networks(trials: pd.DataFrame, split: str = "test") -> pd.DataFrame:
    """Return network_id, network_method, train, gap and se (of the gap) of each known network."""
    numbers = {
        "train": column("train", "accuracy"),
        "gap": column(split, "confidence_gap"),
        "se": column(split, "confidence_gap_se"),
    }
    keys, upper_slots = ["network_id", "network_method"], ["head_method", "posthoc_method"]
    numbers_of_base = [f"{BASE}/{name}" for name in numbers.values()]
    # Only these columns, since a copy of all of them takes a hundred megabytes.
    done = trials.reindex(columns=[*keys, *upper_slots, *numbers.values(), *numbers_of_base])
    done = done[trials["status"] == "done"]
    is_built = done[upper_slots].notna().any(axis="columns")
    networks = done[keys].assign(is_built=is_built)
    for name, source in numbers.items():
        # The row of a head or post-hoc method has the numbers of its network under another name.
        of_base = done[f"{BASE}/{source}"].astype(float)
        networks[name] = of_base.where(is_built, done[source].astype(float))
    # The row of a network precedes those built on it, since a head with `bn_mode` train describes a
    # network whose statistics have drifted.
    networks = networks.dropna(subset=["train", "gap"], how="all")
    networks = networks.sort_values(["is_built", "gap"], kind="stable").drop(columns="is_built")
    distinct: pd.DataFrame = networks.drop_duplicates("network_id").sort_index()
    return distinct


def name_of(run: Run) -> str:
    backbones = map(str, run.trials["backbone"].dropna().unique())
    # Imported data have one name for both.
    return " ".join(dict.fromkeys([run.manifest.dataset, *backbones]))


def _compute_check(networks: pd.DataFrame, split: str) -> NetworkCheck:
    methods = networks["network_method"].dropna().unique()
    measured = networks.dropna(subset="gap")
    # The standard errors are over the images, which all networks share.
    error = float(measured["se"].to_numpy().mean()) if len(measured) else math.nan
    gap, half = over_both(measured["gap"].to_numpy(), error)
    method = str(methods[0]) if len(methods) == 1 else ""
    train = float(networks["train"].mean())
    return NetworkCheck(method, split, len(measured), train=train, gap=gap, half=half)
