"""Records of methods, and their registry."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tune_calib.registry import Registry
from tune_calib.spec.strict import StrictModel


class Params(StrictModel):
    """Hyper-parameters of a method."""


class NoParams(Params):
    """A method without hyper-parameters."""


Need = Literal["calib_pass", "two_forward_passes", "stages"]
NEEDS: dict[Need, str] = {
    "calib_pass": "a pass over calib after every epoch",
    "two_forward_passes": "two forward passes per step",
    "stages": "a backbone that can be run stage by stage",
}

MethodKind = Literal["network", "head", "posthoc"]


@dataclass(frozen=True)
class MethodInfo:
    """A method as registered in ``METHODS``.

    Attributes:
        name: registry key.
        title: one-line description.
        paper: authors and venue.
        year: year of publication.
        url: where to read it.
        formula: LaTeX of the loss or the update, exactly as implemented.
        text: description for ``explain``; empty: the docstring of the implementation's module.
        bibtex: entries to cite, one after the other.
        params: model of the hyper-parameters, with the defaults of the paper.
        implementation: the class that implements the method.
        kind: the slot of a trial spec that it fills; by default that of the implementation.
        needs: keys of ``NEEDS``: what it needs from the engine beyond logits and labels.
        per_head: hyper-parameters that may differ between the heads of one batch.
        recipe: name of its authors' recipe, whose optimiser ``own_recipes`` uses. None: as for all
            other methods.
        dataset_defaults: hyper-parameters that the paper changes for a data set (``cifar10``), or
            for a backbone on it (``cifar10/resnet110``).
        pairs_by_order: whether the order of a batch determines which of its samples are paired.
        trains_own_head: whether a network method trains the network's linear head, so that a head
            method can continue from it.
        keeps_accuracy: whether a post-hoc method never changes the predicted class; None for other
            kinds.
        variants: settings of its other published versions, which a comparison of all methods of
            its kind shows as further rows.
        is_control: whether it is a trivial control, which no report calls the best.
        classes: the only number of classes that a post-hoc method supports; None: any.
        is_quadratic: whether the number of its parameters grows with the square of the classes, so
            that a comparison of all methods leaves it out above ``MOST_QUADRATIC`` classes.
    """

    name: str
    title: str
    paper: str
    year: int
    url: str
    implementation: type[Any]
    params: type[Params] = NoParams
    kind: MethodKind = None  # type: ignore[assignment]  # set below
    formula: str = ""
    text: str = ""
    bibtex: str = ""
    needs: frozenset[Need] = frozenset()
    per_head: frozenset[str] = frozenset()
    recipe: str | None = None
    dataset_defaults: dict[str, dict[str, Any]] | None = None
    pairs_by_order: bool = False
    trains_own_head: bool = True
    keeps_accuracy: bool | None = None
    variants: tuple[dict[str, Any], ...] = ()
    is_control: bool = False
    classes: int | None = None
    is_quadratic: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.kind or self.implementation.kind)


MOST_QUADRATIC = 100
"""Largest number of classes for which all methods include those with a matrix of parameters."""

METHODS: Registry[MethodInfo] = Registry("method", "tune_calib.methods", MethodInfo)
METHODS.aliases["vanilla"] = "ce"  # tables and papers call plain cross entropy vanilla


def cited(paper: str, *keys: str, **corrections: Any) -> dict[str, Any]:
    """Return paper, BibTeX, year and URL for the record of a method.

    Args:
        paper: authors and venue.
        keys: keys of entries in ``references.bib``. Year and URL are those of the last.
        corrections: a year or a URL that differs from the entry's.
    """
    entries = _references()
    last = dict(re.findall(r"^  (year|url) = {(.*)},$", entries[keys[-1]], flags=re.M))
    bibtex = "".join(f"\n{entries[key]}\n" for key in keys)
    return {"paper": paper, "bibtex": bibtex, **last, "year": int(last["year"]), **corrections}


@cache
def _references() -> dict[str, str]:
    text = Path(__file__).with_name("references.bib").read_text("utf-8")
    return {re.split("[{,]", entry, maxsplit=2)[1]: entry for entry in text.strip().split("\n\n")}


def as_on_tiny(**values: Any) -> dict[str, dict[str, Any]]:
    """Return a paper's settings for Tiny-ImageNet, which FeDLaS also uses for CUB and Aircraft."""
    return {name: dict(values) for name in ("tiny_imagenet", "cub", "aircraft")}
