"""What a table or figure of a paper is, as data: what is run for it, and what it claims."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from tune_calib.registry import Registry
from tune_calib.spec.datasets import Settings
from tune_calib.spec.ladder import LADDERS, Rung
from tune_calib.spec.pipelines import all_of, side_by_side

Scale = Literal["smoke", "cpu", "gpu", "paper"]
SCALES: dict[Scale, str] = dict(
    zip(
        get_args(Scale),
        (
            "seconds: that it runs at all",
            "about an hour on two cores",
            "about half an hour on one GPU",
            "as the paper has it",
        ),
        strict=True,
    )
)

Kind = Literal["order", "sign", "size", "close"]


@dataclass(frozen=True)
class Claim:
    """What a table says of its rows, so that results can hold it or not.

    Attributes:
        text: the claim in words, as a reader of the paper would put it.
        rung: label of the rung that it is about.
        than: labels of the rungs that it is compared with; the claim is of each of them. Where
            there are none, it is compared with ``number``.
        metric: of ``names.METRICS``, on test; or of ``analysis.reproduction.quantities``, of which
            no value is the best: its kinds are ``sign`` and ``close``.
        kind: ``order``: ``rung`` is better; ``sign``: its value less theirs is below 0 (above, if
            ``is_rise``), whichever is better; ``size``: it is better by ``least`` or more;
            ``close``: they are less than ``least`` apart.
        least: of a ``size`` and of ``close``, a fraction where the metric is one.
        is_rise: of a ``sign``.
        number: that the value of ``rung`` is compared with.
        run: name of the run whose rungs they are.
    """

    text: str
    rung: str
    than: tuple[str, ...] = ()
    metric: str = "ece"
    kind: Kind = "order"
    least: float = 0.0
    is_rise: bool = False
    number: float = 0.0
    run: str = "ladder"


@dataclass(frozen=True)
class Run:
    """A ladder, a comparison of pipelines, or every method of a kind: exactly one of them.

    Attributes:
        name: part of the names of its folders.
        ladder: key of the ladders.
        methods: pipelines as ``ls+mac_cal+temperature``.
        all: a kind of methods.
        set: settings of this run, whatever the scale.
        own_recipes: each method by the recipe of its authors; not of a ladder.
        controls: with the ladder's controls.
        logits: keep some logits of a trial of each rung, which pictures are drawn from.
        printed: how the paper names the rungs, by their labels; what the ladder itself or the
            names of the methods say need not stand here.
    """

    name: str = "ladder"
    ladder: str | None = None
    methods: tuple[str, ...] = ()
    all: Literal["network", "head", "posthoc"] | None = None
    set: Settings = field(default_factory=dict)
    own_recipes: bool = False
    controls: bool = False
    logits: bool = False
    printed: Mapping[str, str] = field(default_factory=dict)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Its rungs, as far as they can be told without a data set."""
        if self.ladder is not None:
            return LADDERS[self.ladder].rungs
        return all_of(self.all).rungs if self.all else side_by_side(self.methods).rungs


@dataclass(frozen=True)
class Setting:
    """Where a table is made at some scale.

    Attributes:
        datasets: names of data sets; every run is made on each of them.
        backbones: with each of these; the recipe's own one if there are none.
        recipe: of all networks and heads; the data set's quick one unless given.
        set: settings by slot; those of a slot that a run has not are left out of it.
        seeds: of network and head together; of the heads alone where networks are given.
        weights: files of networks that others trained, by their backbones: they stand in the place
            of ``backbones`` and are not trained.
        start: file of weights from which networks are trained on, of its one backbone.
        gpus: of one Ray trial: 0, 1 or 1/k.
        bootstrap: draws of the test samples, and of those of shift sets.
        shift: shift sets on which finished trials are looked at, as words of ``data.shift``.
    """

    datasets: tuple[str, ...]
    backbones: tuple[str, ...] = ()
    recipe: str | None = None
    set: Settings = field(default_factory=dict)
    seeds: int = 3
    weights: Mapping[str, str] = field(default_factory=dict)
    start: str | None = None
    gpus: float = 0.0
    bootstrap: int = 1000
    shift: tuple[str, ...] = ()


SMOKE = (
    Setting(
        ("digits",),
        set={
            "network": {"epochs": 2, "augment": "none"},
            "head": {"epochs": 2, "augment": "none"},
        },
        seeds=1,
        bootstrap=100,
    ),
)
"""The scale ``smoke`` of every table that digits can have."""

# ResNets of He et al. for CIFAR-10 with published weights; docs/pages/own-network.md.
GIVEN = {f"resnet{depth}_he": f"resnet{depth}.safetensors" for depth in (20, 32, 44, 56)}
"""The four published networks, by backbone: files of ``--weights FOLDER``."""

CPU = (Setting(("cifar10", "cifar100"), set={"network": {"precision": "bf16"}}),)
"""The scale ``cpu`` of most tables: the quick recipes, which are in the papers' regime."""

CPU_HEADS = (
    *CPU,
    Setting(
        ("cifar10",),
        weights=GIVEN,
        set={"head": {"epochs": 40, "batch_size": 128, "augment": "none"}},
        seeds=5,
    ),
)
"""That of tables of heads, which can stand on the published networks too."""


FOREIGN_SMOKE = tuple(
    replace(
        own,
        set={**own.set, "data": {"held_out_classes": [8, 9]}},
        shift=("noise", "heldout"),
    )
    for own in SMOKE
)
"""The scale ``smoke`` of tables of foreign images: two digits are left out to be some."""


def on_cifar(own: Setting, *shift: str) -> tuple[Setting, ...]:
    """A setting on either CIFAR, to which the other is foreign.

    Args:
        own: the rest of it.
        shift: further shift sets of both.
    """
    pairs = (("cifar10", "cifar100"), ("cifar100", "cifar10"))
    return tuple(replace(own, datasets=(name,), shift=(other, *shift)) for name, other in pairs)


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper.

    Attributes:
        name: registry key, ``PAPER/TABLE`` as ``maccal/table5``.
        title: one line.
        runs: what is run for it.
        metrics: of its table, of ``names.METRICS`` or ``analysis.reproduction.quantities``, in
            the order of print.
        claims: what it claims; none of a figure of which nothing is told.
        scales: where it is made, by scale; one that is not here is refused.
        published: its numbers in the packaged published results; None where none are printed.
        note: how what is run here differs from the paper, if it does.
        figures: names of the figures of a ladder's report that are its picture.
    """

    name: str
    title: str
    runs: tuple[Run, ...]
    metrics: tuple[str, ...]
    claims: tuple[Claim, ...]
    scales: Mapping[Scale, tuple[Setting, ...]]
    published: str | None = None
    note: str = ""
    figures: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Name of its folder in OUT, e.g. ``maccal-table5``."""
        return self.name.replace("/", "-")

    def run(self, name: str) -> Run:
        """The run of a name."""
        return next(run for run in self.runs if run.name == name)


REPRODUCTIONS: Registry[Reproduction] = Registry(
    "table of a paper", "ablations.papers", Reproduction, parted=True
)
