"""Models of the tables and figures of papers: experiment files with scales and claims."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic.dataclasses import dataclass

from tune_calib.registry import Registry
from tune_calib.spec import request
from tune_calib.spec.experiment import Entry, Where
from tune_calib.spec.request import OptionHelp
from tune_calib.spec.strict import LocalPath, Share, Words, as_tuple
from tune_calib.spec.yaml_text import YamlFile, read_yaml

OPTIONS = "Options"

Scale = Literal["smoke", "cpu", "day", "gpu", "paper"]
SCALES: dict[Scale, str] = {
    "smoke": "one to two minutes for a table of heads, on over-confident networks for digits",
    "cpu": "about an hour on two cores",
    "day": "hours to days on two cores with the recipe fast (the same command resumes it)",
    "gpu": "about half an hour on one GPU",
    "paper": "as in the paper",
}


@dataclass(frozen=True, config=ConfigDict(extra="forbid", use_attribute_docstrings=True))
class Comparison:
    """A statement about the rungs of a table that results can support or contradict."""

    rung: str
    """Label of the rung that it is about."""
    than: tuple[str, ...] = ()
    """Labels of the rungs that it is compared with, one by one; without any, it is compared with
    ``number``. For a ``trend``, the rungs that follow ``rung`` in the order of the setting."""
    metric: str = "ece"
    """A name from ``tune-calib list metrics``, on test, or from
    ``analysis.reproduction.quantities``, which have no best value and allow the kinds ``sign``,
    ``close`` and ``trend``."""
    kind: Literal["order", "sign", "size", "close", "ratio", "rank", "trend"] = "order"
    """``order``: ``rung`` is better; ``sign``: its value minus theirs is below 0 (above, if
    ``is_rise``), whichever is better; ``size``: it is better by ``least`` or more; ``close``: they
    differ by less than ``least``; ``ratio``: its value is at most ``least`` times theirs; ``rank``:
    its rank among all rungs is better; ``trend``: the values fall (rise, if ``is_rise``) from
    ``rung`` over the rungs of ``than``, by the slope per rung."""
    least: float = 0.0
    """Threshold of ``size``, ``close`` (a fraction if the metric is one) and ``ratio``."""
    is_rise: bool = False
    """Whether the value of a ``sign`` is above 0, or a ``trend`` rises."""
    number: float = 0.0
    """Number that the value of ``rung`` is compared with."""

    less: tuple[str, str] | None = None
    """Two rungs whose difference, the first minus the second, is subtracted from that between
    ``rung`` and each of ``than``: a difference of two differences."""

    weights: dict[str, float] | None = None
    """Weights of the rungs in another sum; ``rung`` is then its name."""

    @property
    def others(self) -> tuple[str, ...]:
        """Return the labels to compare ``rung`` with one by one; an empty one means ``number``."""
        return ("",) if self.kind == "trend" else self.than or ("",)

    def weigh(self, than: str) -> dict[str, float]:
        """Return the weights of the rungs in the judged sum for the comparison with ``than``."""
        if self.weights is not None:
            return dict(self.weights)
        if self.kind == "trend":
            rungs = (self.rung, *self.than)
            places = [place - (len(rungs) - 1) / 2 for place in range(len(rungs))]
            squares = sum(place**2 for place in places)
            return {rung: place / squares for rung, place in zip(rungs, places, strict=True)}
        if not than:
            return {self.rung: 1.0}
        weights = {self.rung: 1.0, than: -1.0}
        if self.kind == "ratio":
            weights[than] = -self.least
        for label, weight in zip(self.less or (), (-1.0, 1.0), strict=False):
            weights[label] = weights.get(label, 0.0) + weight
        return weights


@dataclass(frozen=True, config=ConfigDict(extra="forbid", use_attribute_docstrings=True))
class Claim(Comparison):
    """A claim about rows of a table: it holds if its comparison and those of ``also`` hold."""

    text: str = Field(kw_only=True)
    """The claim in words, as a reader of the paper would put it."""
    also: tuple[Comparison, ...] = ()
    """Further comparisons that must hold, e.g. that the accuracy is kept."""
    over: Literal["each", "networks", "mean"] = "each"
    """Whether it is judged on ``each`` data set and network, for each data set on the mean over its
    ``networks``, or on the ``mean`` over all."""
    is_ours: bool = False
    """Whether the claim is ours, not stated by the paper."""
    network: str | None = None
    """Data set and backbone that the claim names, e.g. ``cifar100 resnet110``. Its verdict on any
    other network is marked as judged elsewhere and not counted."""
    run: str | None = None
    """Name of the entry with these rungs; by default, every entry has them."""

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        return (self, *self.also)


class Run(Entry):
    """An entry of a table: a ladder, a comparison of pipelines, or every method of a kind."""

    logits: bool = False
    """Whether to keep some logits of each trial, for pictures and angles between classes."""
    printed: dict[str, str] = Field(default_factory=dict)
    """The paper's names of the rungs, by label; names that the ladder or the methods already have
    can be omitted."""

    @model_validator(mode="after")
    def _no_search(self) -> "Run":
        if self.search is not None:
            raise ValueError("a table cannot contain a search")
        return self


class Setting(Where):
    """The data sets and networks of a table at some scale; each entry is run on all of them."""

    weights: dict[request.Backbone, str] = Field(default_factory=dict)
    """Files of networks trained by others, by backbone. They replace ``backbones`` and are not
    trained; ``seeds`` are those of heads."""
    start: str | None = None
    """File of weights, for its one backbone, from which training starts."""


class Reproduction(Where):
    """A table or figure of a paper."""

    name: str
    """Registry key, ``PAPER/TABLE``, e.g. ``maccal/table5``."""
    title: str
    """One-line title."""
    published: str | None = None
    """Name of its numbers in the packaged published results; None if the paper prints none."""
    metrics: tuple[str, ...]
    """Metrics of its table, in printed order: names from ``tune-calib list metrics`` or from
    ``analysis.reproduction.quantities``."""
    figures: tuple[str, ...] = ()
    """Names of the figures of a ladder's report that reproduce it."""
    note: str = ""
    """How the runs differ from the paper, if they do."""
    entries: dict[Annotated[str, Field(pattern=r"^[\w.+-]+$")], Run] = Field(min_length=1)
    """Its runs by name, which is part of the names of their folders."""
    scales: dict[Scale, tuple[Setting, ...]]
    """Settings by scale, which override those of the table; other scales are refused."""
    claims: tuple[Claim, ...] = ()
    """The paper's claims about it."""

    _file: YamlFile | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _known_entries(self) -> "Reproduction":
        for claim in self.claims:
            if claim.run is not None and claim.run not in self.entries:
                raise ValueError(f"{claim.text!r} belongs to {claim.run!r}, which is not an entry")
        return self

    @property
    def folder(self) -> str:
        """Return the name of its folder in OUT, e.g. ``maccal-table5``."""
        return self.name.replace("/", "-")

    @property
    def source(self) -> YamlFile:
        """Return the file that it was read from; only its name if it was made in Python."""
        return self._file or YamlFile(Path(self.name), {}, {})


class ReproduceRequest(request.Acceptance):
    """Tables of papers to reproduce."""

    tables: Annotated[Words, OptionHelp(names=lambda: REPRODUCTIONS)] = ()
    """tables by name, PAPER/TABLE (see tune-calib reproduce --list)"""
    scale: Annotated[Scale, OptionHelp(OPTIONS, names=lambda: SCALES)] = Field(
        "cpu", description="; ".join(f"{name}: {what}" for name, what in SCALES.items())
    )
    seeds: Annotated[request.SeedPairs, OptionHelp(OPTIONS, "the scale's")] = None
    dataset: Annotated[
        tuple[request.Dataset, ...],
        BeforeValidator(as_tuple),
        OptionHelp(request.DATA, "the scale's"),
    ] = ()
    """only these data sets of the scale"""
    data_root: request.DataRoot = None
    weights: Annotated[LocalPath | None, OptionHelp(OPTIONS)] = None
    """folder with networks trained by others; without it, entries that need them are left out"""
    set: Annotated[request.Overrides, OptionHelp(OPTIONS, metavar="SLOT.KEY=VALUE")] = None
    out: Annotated[request.Out, OptionHelp(request.WHERE, "runs/reproduce-SCALE", "PATH")] = None
    address: request.Address = None
    gpus: Annotated[Share | None, OptionHelp(request.WHERE, "the scale's")] = None
    """GPUs per trial: 0, 1, 1/k or auto"""


def read_reproduction(path: Path) -> Reproduction:
    file = read_yaml(path, "a table of a paper")
    table = file.validate(Reproduction)
    table._file = file
    return table


REPRODUCTIONS: Registry[Reproduction] = Registry(
    "table of a paper", "ablations.papers", Reproduction, parted=True
)
