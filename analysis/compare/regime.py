"""The network check: whether the networks under results fit train and are over-confident.

Methods that lower confidence do something else to a network that is not over-confident: results
there need not carry over to the networks of the papers, which are.
"""

import math
from dataclasses import dataclass

import pandas as pd

from analysis.compare.intervals import over_both
from analysis.load import Sweep
from tune_calib.spec.metrics import BASE, METRICS, column
from tune_calib.text import format_count

PLAIN = "ce"  # the networks that all papers begin with
_NOT_RECORDED = "The regime of the base network was not recorded"
_NO_CARRY = (
    "results of methods that lower confidence may not carry over to networks that are "
    "over-confident, as in the papers"
)


@dataclass(frozen=True)
class Regime:
    """How well base networks fit train, and how over-confident they are; NaN where unknown."""

    method: str  # that trained them; empty where it is not known
    split: str  # of the confidence gap, ``test`` or, in a search, ``select``
    networks: int
    train: float  # mean accuracy on all training images, clean
    gap: float  # mean confidence gap, with the 95 % interval gap ± half
    half: float

    @property
    def is_recorded(self) -> bool:
        """Return whether the confidence gap is known."""
        return not math.isnan(self.gap)

    @property
    def is_over_confident(self) -> bool:
        """Return whether the networks are significantly over-confident."""
        return self.gap > self.half

    @property
    def why_no_verdict(self) -> str:
        """Explain why a paper's claim gets no verdict; empty if it may get one."""
        # Older results did not record it, and lose no verdict.
        if self.is_over_confident or not self.is_recorded:
            return ""
        return "the base network is not significantly over-confident"

    @property
    def sentence(self) -> str:
        """Describe the networks for captions and pages, without a full stop."""
        if not self.is_recorded:
            return _NOT_RECORDED
        name = f" ({self.method})" if self.method else ""
        is_unknown = math.isnan(self.train)  # of imported data without train
        fit = (
            f"fits train to {_percent(self.train)} %, " if not is_unknown else "(train not known) "
        )
        images = "images" if self.networks == 1 else "images and networks"
        interval = (
            f"{format_count(self.networks, 'network')}; 95 % bootstrap interval over {images}"
        )
        checked = f"Base network{name} {fit}is {self._confidence} on {self.split} ({interval})"
        return f"{checked}: {_NO_CARRY}" if self.why_no_verdict else checked

    @property
    def _confidence(self) -> str:
        half = _percent(self.half)
        if abs(self.gap) <= self.half:
            gap = METRICS["confidence_gap"].format(self.gap, signed=True)
            return f"not significantly over- or under-confident ({gap} ± {half} points)"
        side = "over" if self.gap > 0 else "under"
        return f"{side}-confident by {_percent(abs(self.gap))} ± {half} points"


def regime_of(sweep: Sweep) -> Regime:
    """Check the networks of plain cross entropy of a sweep if it has some, else its first ones.

    In a ladder its steps begin with these, in a comparison methods are held against them. The rows
    of heads describe their networks, so the sweep needs no row of the networks themselves.
    """
    return _of_networks(_beneath(sweep), "test")


def of_baseline(trials: pd.DataFrame) -> Regime:
    """Check the networks of the baseline of a search, whose rows have rung -1, on ``select``."""
    return _of_networks(known_networks(trials[trials["rung"] < 0], "select"), "select")


def known_networks(trials: pd.DataFrame, split: str = "test") -> pd.DataFrame:
    """Return what rows record of the networks beneath them, one row per network.

    Columns network_id, network_method, train (accuracy), gap, se (its standard error over the
    images); fractions, NaN where one is not known.
    """
    done = trials[trials["status"] == "done"]
    found = done.reindex(columns=["network_id", "network_method"])
    told = {
        "train": column("train", "accuracy"),
        "gap": column(split, "confidence_gap"),
        "se": column(split, "confidence_gap_se"),
    }
    for name, own in told.items():
        # The row of a head or a transform has its own numbers there: it tells of its network under
        # another name. A plain network's row has nothing under that name.
        stands = _numbers(done, f"{BASE}/{own}")
        found[name] = stands.where(_is_built(done), _numbers(done, own))
    known = found.dropna(subset=["train", "gap"], how="all").assign(is_built=_is_built(done))
    # A network's own row before those that stand on it: a head with `bn_mode` train tells of a
    # network whose statistics drifted.
    known = known.sort_values(["is_built", "gap"], kind="stable").drop(columns="is_built")
    networks: pd.DataFrame = known.drop_duplicates("network_id").sort_index()
    return networks


def name_of(sweep: Sweep) -> str:
    """Return data set and backbones of a sweep, which tell it from others, e.g. ``cifar10 vit``."""
    backbones = map(str, sweep.trials["backbone"].dropna().unique())
    # Of imported data both have one name.
    return " ".join(dict.fromkeys([sweep.manifest.dataset, *backbones]))


def _beneath(sweep: Sweep) -> pd.DataFrame:
    """Return what is known of the base networks of a sweep."""
    plain = _plain_rows(sweep)
    rows = plain if len(plain) else sweep.of_rung(min(sweep.labels, default=0), done_only=False)
    known = known_networks(sweep.trials)
    return known[known["network_id"].isin(set(rows.reindex(columns=["network_id"])["network_id"]))]


def _plain_rows(sweep: Sweep) -> pd.DataFrame:
    """Return the rows of the first rung with networks of plain cross entropy, if any."""
    methods = sweep.trials.reindex(columns=["network_method"])["network_method"]
    plain = sweep.trials[methods == PLAIN]
    # Of one rung: others may train such a network otherwise.
    first: pd.DataFrame = plain[plain["rung"] == plain["rung"].min()]
    return first


def _is_built(trials: pd.DataFrame) -> "pd.Series[bool]":
    """Return whether each row is of more than a plain network."""
    slots = trials.reindex(columns=["head_method", "posthoc_method"])
    is_built: pd.Series[bool] = slots.notna().any(axis="columns")
    return is_built


def _numbers(trials: pd.DataFrame, name: str) -> "pd.Series[float]":
    numbers: pd.Series[float] = trials.reindex(columns=[name])[name].astype(float)
    return numbers


def _of_networks(networks: pd.DataFrame, split: str) -> Regime:
    methods = networks["network_method"].dropna().unique()
    known = networks.dropna(subset="gap")
    # The standard errors are of bootstrap samples of the images, which all networks share.
    error = float(known["se"].to_numpy().mean()) if len(known) else math.nan
    gap, half = over_both(known["gap"].to_numpy(), error)
    train = float(networks["train"].mean()) if len(networks) else math.nan
    method = str(methods[0]) if len(methods) == 1 else ""
    return Regime(method, split, len(known), train, gap, half)


def _percent(fraction: float) -> str:
    return METRICS["confidence_gap"].format(fraction)
