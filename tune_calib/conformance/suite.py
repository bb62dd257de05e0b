"""Checks of records and search spaces, and the results of all checks of a method."""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tune_calib.conformance import heads, networks, posthoc
from tune_calib.conformance.bench import (
    CHECKS,
    Bench,
    Check,
    FailedCheckError,
    NotApplicableError,
    check,
    require,
)
from tune_calib.errors import DivergedError, UserError, locate_error
from tune_calib.methods._base import HeadMethod, NetworkMethod, PostHocMethod
from tune_calib.spec.methods import METHODS, NEEDS, MethodInfo
from tune_calib.spec.names import NOT_SETTINGS
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.settings import own_recipe, resolve_spec
from tune_calib.spec.space import SPACES, Point, Space
from tune_calib.spec.trial import SLOT_TYPES, TrialSpec

_CLASSES = {"network": NetworkMethod, "head": HeadMethod, "posthoc": PostHocMethod}
LARGEST_GRID = 300


@check("any", "record", "the record is complete")
def record(info: MethodInfo, bench: Bench) -> None:
    fields, slot = set(info.params.model_fields), set(SLOT_TYPES[info.kind].model_fields)
    expected = _CLASSES[info.kind]
    is_one = issubclass(info.implementation, expected)
    require(is_one, f"its implementation is no {expected.__name__}, but kind is {info.kind!r}")
    shared_names = fields & slot
    require(
        not shared_names,
        f"its setting {' and '.join(sorted(shared_names))} exists in every {info.kind} slot",
    )
    require(info.needs <= set(NEEDS), f"needs must be a subset of {', '.join(NEEDS)}")
    require(info.per_head <= fields, f"per_head has unknown {sorted(info.per_head - fields)}")
    named = info.recipe is None or info.recipe in RECIPES
    require(named, f"its recipe {info.recipe!r} is not registered; known: {', '.join(RECIPES)}")
    is_told = (info.keeps_accuracy is not None) == (info.kind == "posthoc")
    require(is_told, "keeps_accuracy must be True or False for post-hoc methods, else None")
    foreign = set(own_recipe(info, "")) - (fields | slot)
    require(not foreign, f"its recipe sets {sorted(foreign)}, which are not settings of it")
    info.params()
    for values in (info.dataset_defaults or {}).values():
        info.params(**values)


@check("any", "space", "the search space contains its settings, and each point is a valid trial")
def _space(info: MethodInfo, bench: Bench) -> None:
    space = _space_of(info)
    require(space.settings, "its space is empty")
    fields = {*info.params.model_fields, *SLOT_TYPES[info.kind].model_fields}
    searchable = fields - {*NOT_SETTINGS, "epochs"}
    for key in space.settings:
        slot, _, field = key.partition(".")
        is_one = slot == info.kind and field in searchable
        require(is_one, f"its space searches {key}, which is not a setting of a {info.kind} method")
    earlier_settings: dict[str, Any] = {}
    for key, setting in space.settings.items():
        for other, values in setting.only_if.items():
            # A sampler draws settings in this order, so a setting must follow those on which it
            # depends.
            earlier = earlier_settings.get(other)
            can = earlier is not None and all(map(earlier.holds, values))
            require(can, f"{key} depends on {other}, which must precede it and allow {values}")
        earlier_settings[key] = setting
    for point in space.first:
        require(space.holds(point), f"{dict(point)} is tried first but is not in the space")
    points = list(itertools.islice(space.grid(), LARGEST_GRID))
    hashes = {_spec(info, point).hash for point in points}
    require(len(hashes) == len(points), "two points of its space are the same trial")


def _space_of(info: MethodInfo) -> Space:
    if info.name not in SPACES:
        raise NotApplicableError("it has no search space, so it cannot be searched")
    return SPACES[info.name]


def _spec(info: MethodInfo, point: Point) -> TrialSpec:
    settings = {key.partition(".")[2]: value for key, value in point.items()}
    return resolve_spec({info.kind: {"method": info.name, **settings}})


@check("any", "ends", "the method works at the bounds of its search space")
def _ends(info: MethodInfo, bench: Bench) -> None:
    for key, setting in _space_of(info).settings.items():
        under = {other: values[0] for other, values in setting.only_if.items()}
        for point in ({**under, key: level} for level in setting.levels()):
            try:
                _try(info, bench, _spec(info, point))
            except DivergedError:  # allowed at the bounds
                continue
            except (AssertionError, UserError) as error:
                require(False, f"at {point}: {error}")


def _try(info: MethodInfo, bench: Bench, spec: TrialSpec) -> None:
    if info.kind == "network":
        networks.step_is_finite(info, 5, spec.network.params)
    elif spec.head is not None:
        # One epoch, since a head is trained for each bound of each setting.
        small = spec.head.model_copy(update={"epochs": 1, "augment": "none"})
        heads.trained([small], bench)
    elif spec.posthoc is not None:
        posthoc.is_finite(info, bench, spec.posthoc.params)


@dataclass(frozen=True)
class Result:
    check: Check
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        mark = {"passed": "ok", "failed": "FAILED", "skipped": "-"}[self.outcome]
        reason = f": {self.reason}" if self.reason else ""
        return f"{mark:<7} {self.check.name:<12} {self.check.rule}{reason}"


def checks_of(info: MethodInfo) -> tuple[Check, ...]:
    return (*CHECKS["any"], *CHECKS[info.kind])


def results(name: str, bench: Bench) -> Iterator[Result]:
    info = METHODS[name]
    file = getattr(sys.modules.get(info.implementation.__module__), "__file__", None)
    for conformance_check in checks_of(info):
        try:
            conformance_check.run(info, bench)
        except FailedCheckError as error:
            yield Result(conformance_check, "failed", str(error))
        except NotApplicableError as error:
            yield Result(conformance_check, "skipped", str(error))
        except Exception as error:  # the code of a plug-in may raise anything
            reason = locate_error(error, lambda path: path == file)
            yield Result(conformance_check, "failed", reason)
        else:
            yield Result(conformance_check, "passed")
