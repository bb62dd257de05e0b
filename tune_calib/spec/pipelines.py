"""Ladders of pipelines that somebody names: methods side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from tune_calib.errors import UserError
from tune_calib.spec.datasets import Settings
from tune_calib.spec.ladder import Kind, Ladder, Rung, refuse_unknown
from tune_calib.spec.methods import METHODS
from tune_calib.text import nearest, short_repr


def build_comparison(pipelines: Sequence[str], settings: Sequence[Settings] = ()) -> Ladder:
    """Build a ladder of variants: methods, or pipelines such as ``ls+mac_cal+temperature``.

    Args:
        pipelines: names of the method registry joined by ``+``, each of another kind; where no
            network method is among them, the network is trained with CE.
        settings: of each pipeline, by slot; none has any unless given.
    """
    require_methods(pipelines)
    given = list(settings) or [{}] * len(pipelines)
    rungs = tuple(
        build_rung(name, own, "variant" if index else "base")
        for index, (name, own) in enumerate(zip(pipelines, given, strict=True))
    )
    labels = [rung.label for rung in rungs]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label!r} is named twice")
    name = "compare " + " ".join(labels)
    return Ladder(name, "Methods side by side", rungs, is_named=True)


def require_methods(pipelines: Sequence[str]) -> None:
    """Refuse pipelines of unknown methods, before any method is imported."""
    for name in pipelines:
        for part in _parts(name):
            METHODS.require(part)


def require_kind(kind: str) -> None:
    """Refuse what is no kind of methods, before any method is imported."""
    kinds = sorted({_kind_of(name) for name in METHODS})
    if kind not in kinds:
        raise UserError(f"no method is of kind {short_repr(kind)}{nearest(kind, kinds)}")


def _kind_of(method: str) -> str:
    return METHODS.facts(method).get("kind") or METHODS[method].kind


def build_kind_comparison(kind: str) -> Ladder:
    """Build a ladder of all methods of a kind at their defaults and the unchanged network."""
    require_kind(kind)
    # Plain cross entropy is the network as it is.
    names = [name for name in METHODS if _kind_of(name) == kind and name != "ce"]
    vanilla = Rung("vanilla", "the network as it is", kind="base")
    rungs = (vanilla, *(build_rung(name, {}, "variant") for name in names))
    labels = " ".join(rung.label for rung in rungs)
    printed = "post-hoc" if kind == "posthoc" else kind
    return Ladder(f"compare {labels}", f"Every {printed} method side by side", rungs)


def build_rung(name: str, settings: Settings, kind: Kind) -> Rung:
    """One rung of ``build_comparison``; its label tells the settings too."""
    methods = [METHODS[part] for part in _parts(name)]
    slots: dict[str, Mapping[str, Any]] = {}
    for method in methods:
        if method.kind in slots:
            raise UserError(f"{name!r} has two {method.kind} methods; a pipeline takes one a kind")
        slots[method.kind] = {"method": method.name}
    label = name
    for slot, asked in settings.items():
        if slot not in slots and slot != "network":
            key = next(iter(asked))
            raise UserError(f"{name!r} has no {slot} method to set {key!r} of", f"{slot}.{key}")
        label += "".join(f" {key}={value}" for key, value in asked.items())
    refuse_unknown([Rung(name, "", slots)], settings)
    for slot, asked in settings.items():
        slots[slot] = {**asked, **slots.get(slot, {})}
    return Rung(label, " + ".join(method.title for method in methods), slots, kind=kind)


def _parts(name: str) -> list[str]:
    parts = name.split("+")
    if not all(part.strip() for part in parts):
        raise UserError(f"{name!r} has an empty part; write e.g. ls+mac_cal+temperature")
    return parts
