"""What the record and the search space of every method must be."""

import itertools
from collections.abc import Iterator
from typing import Any

from tune_calib.conformance import heads, networks, posthoc
from tune_calib.conformance.bench import Bench
from tune_calib.conformance.check import Check, NotApplicableError, require
from tune_calib.errors import DivergedError, UserError
from tune_calib.methods._base import HeadMethod, NetworkMethod, PostHocMethod
from tune_calib.spec.methods import NEEDS, MethodInfo
from tune_calib.spec.names import NOT_SETTINGS
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.settings import own_recipe, resolve_spec
from tune_calib.spec.space import SPACES, Point, Space
from tune_calib.spec.trial import SLOTS, TrialSpec

_CLASSES = {"network": NetworkMethod, "head": HeadMethod, "posthoc": PostHocMethod}
LARGEST_GRID = 300


def record(info: MethodInfo, bench: Bench) -> None:
    """Names in the record are names of settings."""
    fields, slot = set(info.params.model_fields), set(SLOTS[info.kind].model_fields)
    expected = _CLASSES[info.kind]
    is_one = issubclass(info.implementation, expected)
    require(is_one, f"its implementation is no {expected.__name__}, as kind={info.kind!r} says")
    both = fields & slot
    require(not both, f"its setting {' and '.join(sorted(both))} is one of every {info.kind} slot")
    require(info.needs <= set(NEEDS), f"needs must be of {', '.join(NEEDS)}")
    require(info.per_head <= fields, f"per_head names {sorted(info.per_head - fields)}")
    named = info.recipe is None or info.recipe in RECIPES
    require(named, f"its recipe {info.recipe!r} is not registered; known: {', '.join(RECIPES)}")
    is_told = (info.keeps_accuracy is not None) == (info.kind == "posthoc")
    require(is_told, "keeps_accuracy is True or False of a post-hoc method, None of others")
    foreign = set(own_recipe(info, "")) - (fields | slot)
    require(not foreign, f"its recipe sets {sorted(foreign)}, which are no settings of it")
    info.params()
    for values in (info.dataset_defaults or {}).values():
        info.params(**values)


def space(info: MethodInfo, bench: Bench) -> None:
    """Every key is a setting, every published point lies in it, every point makes a spec."""
    if info.name not in SPACES:
        raise NotApplicableError("it has no search space, so that it cannot be searched")
    own = SPACES[info.name]
    require(own.settings, "its space is empty")
    known = {*info.params.model_fields, *SLOTS[info.kind].model_fields} - {*NOT_SETTINGS, "epochs"}
    for key in own.settings:
        slot, _, field = key.partition(".")
        is_one = slot == info.kind and field in known
        require(is_one, f"its space searches {key}, which is no setting of a {info.kind} method")
    before: dict[str, Any] = {}
    for key, setting in own.settings.items():
        for other, values in setting.only_if.items():
            # A sampler draws settings in this order: what one depends on has to be drawn before it.
            can = other in before and all(before[other].holds(value) for value in values)
            require(can, f"{key} depends on {other}, which must stand before it and take {values}")
        before[key] = setting
    for point in own.first:
        require(own.holds(point), f"{dict(point)} is tried first and does not lie in the space")
    points = list(itertools.islice(own.grid(), LARGEST_GRID))
    hashes = {_spec(info, point).hash for point in points}
    require(len(hashes) == len(points), "two points of its space are one trial")


def _spec(info: MethodInfo, point: Point) -> TrialSpec:
    settings = {key.partition(".")[2]: value for key, value in point.items()}
    return resolve_spec({info.kind: {"method": info.name, **settings}})


def ends(info: MethodInfo, bench: Bench) -> None:
    """One setting after the other at its ends: an epoch may diverge, and nothing else."""
    if info.name not in SPACES:
        raise NotApplicableError("it has no search space, so that it cannot be searched")
    for point in _ends(SPACES[info.name]):
        try:
            _try(info, bench, _spec(info, point))
        except DivergedError:
            continue
        except (AssertionError, UserError) as error:
            require(False, f"at {point}: {error}")


def _ends(own: Space) -> Iterator[dict[str, Any]]:
    """Each level of each setting, with what it depends on; the others at their defaults."""
    for key, setting in own.settings.items():
        under = {other: values[0] for other, values in setting.only_if.items()}
        for level in setting.levels():
            yield {**under, key: level}


def _try(info: MethodInfo, bench: Bench, spec: TrialSpec) -> None:
    if info.kind == "network":
        networks.step_is_finite(info, 5, spec.network.params)
    elif spec.head is not None:
        # One epoch, since each end of each setting is trained.
        small = spec.head.model_copy(update={"epochs": 1, "augment": "none"})
        heads.trained([small], bench)
    elif spec.posthoc is not None:
        posthoc.is_finite(info, bench, spec.posthoc.params)


CHECKS = (
    Check("record", "its record is whole", record),
    Check("space", "its search space holds settings of it, and each point is a trial", space),
    Check("ends", "it works at the ends of its search space", ends),
)
