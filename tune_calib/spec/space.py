"""Records of search spaces: distributions by setting, which may depend on other settings."""

import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from statistics import geometric_mean
from typing import Any

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.text import format_setting, nearest

FACTOR = 32
"""Factor by which rates and penalties are searched on both sides of their published value."""

MANY_POINTS = 100_000
"""From this size on, a finite space counts as infinite: no search exhausts it."""

Choice = None | bool | int | float | str
Point = Mapping[str, Choice]


@dataclass(frozen=True)
class Setting:
    """One setting of a space."""

    distribution: Any  # of Optuna, whose import takes a third of a second
    # Earlier settings, with the values for which this one matters; otherwise it keeps its default.
    only_if: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)
    grid: tuple[Choice, ...] = ()  # the user's levels
    reason: str = ""  # for the ends of a bounded range

    def matters(self, chosen: Point) -> bool:
        """Return whether the setting matters, given the values of the settings before it."""
        for name, values in self.only_if.items():
            if name not in chosen or chosen[name] not in values:
                return False
        return True

    def holds(self, value: Any) -> bool:
        if (values := self.values()) is not None:
            return value in values
        low, high = self.distribution.low, self.distribution.high
        return isinstance(value, int | float) and low <= value <= high

    def levels(self, halvings: int = 1) -> Sequence[Choice]:
        """Return the user's grid, every choice, or the ends of a range and middles of its parts."""
        values = self.grid or self.values()
        if values is not None and (self.grid or hasattr(self.distribution, "choices")):
            return values
        points: list[Any] = [0, len(values or ()) - 1]
        if values is None:
            points = [self.distribution.low, self.distribution.high]
        for _ in range(halvings):
            for low, high in list(itertools.pairwise(points)):
                middle = (low + high) / 2
                if values is not None:
                    middle = (low + high) // 2
                elif self.distribution.log:
                    middle = (low * high) ** 0.5
                points.append(middle)
            points.sort()
        return points if values is None else [values[place] for place in dict.fromkeys(points)]

    def at(self, fraction: float) -> Choice:
        """Return the value that a fraction in [0, 1) of the distribution lies below."""
        distribution: Any = self.distribution
        values, is_log = self.values(), getattr(distribution, "log", False)
        if values is not None and not is_log:
            return values[int(fraction * len(values))]
        low, high = distribution.low, distribution.high
        if not is_log:
            return float(low + fraction * (high - low))
        value = float(low * (high / low) ** fraction)
        if values is None:
            return value
        numbers: Sequence[Any] = values
        nearest_number: Choice = min(numbers, key=lambda number: abs(math.log(number / value)))
        return nearest_number

    def over(self, name: str, values: Sequence[Choice]) -> "Setting":
        """Return the setting with the values of a grid as its levels."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        if not isinstance(self.distribution, FloatDistribution):
            choices = dict.fromkeys([*(self.values() or ()), *values])
            distribution: Any = CategoricalDistribution(list(choices))
            return replace(self, distribution=distribution, grid=tuple(dict.fromkeys(values)))
        numbers = [float(value) for value in values if isinstance(value, float | int)]
        if len(numbers) < len(values) or not numbers:
            raise UserError(f"the values of {name} must be numbers", "grid")
        # With the range, and so with the method's default.
        low = min(self.distribution.low, *numbers)
        high = max(self.distribution.high, *numbers)
        distribution = FloatDistribution(low, high, log=self.distribution.log and low > 0)
        return replace(self, distribution=distribution, grid=tuple(dict.fromkeys(numbers)))

    def values(self) -> Sequence[Choice] | None:
        """Return all values, each once; None for a range of real numbers."""
        if hasattr(self.distribution, "choices"):
            return list(dict.fromkeys(self.distribution.choices))
        low, high, step = self.distribution.low, self.distribution.high, self.distribution.step
        if isinstance(low, int):
            return range(low, high + 1, step)
        if low == high:
            return [low]
        if step is None:
            return None
        # As Optuna computes them.
        return [min(low + step * index, high) for index in range(round((high - low) / step) + 1)]

    def plain(self) -> dict[str, Any]:
        from optuna.distributions import distribution_to_json

        kind = type(self.distribution).__name__.removesuffix("Distribution").lower()
        conditions = {name: list(values) for name, values in self.only_if.items()}
        attributes = json.loads(distribution_to_json(self.distribution))["attributes"]
        return {"kind": kind, **attributes, "only_if": conditions}

    def __str__(self) -> str:
        """Format for a table, e.g. ``0.01 to 0.3, log; only if head.shape is bottleneck``."""
        if hasattr(self.distribution, "choices"):
            text = " | ".join(map(format_setting, self.distribution.choices))
        else:
            text = f"{self.distribution.low:g} to {self.distribution.high:g}"
            if self.distribution.log:
                text += ", log"
        for name, condition in self.only_if.items():
            text += f"; only if {name} is {' or '.join(map(format_setting, condition))}"
        return text


@dataclass(frozen=True)
class Space:
    """The search space of a method."""

    name: str  # name of the method
    settings: Mapping[str, Setting]  # by ``slot.key``, after those that they depend on
    # Published values besides the method's own defaults, which are tried first. A point may leave
    # settings at their defaults.
    first: tuple[Point, ...] = ()

    def without(self, fixed: Mapping[str, Any]) -> "Space":
        """Return the space without fixed settings, and without those that can no longer matter."""
        left: dict[str, Setting] = {}
        for name, setting in self.settings.items():
            # One pass is enough, since a setting comes after those that it depends on. A failed
            # condition is neither met nor left, so the setting is removed with it.
            conditions = dict(setting.only_if)
            for condition, values in setting.only_if.items():
                if condition in fixed and fixed[condition] in values:
                    del conditions[condition]
            if name not in fixed and conditions.keys() <= left.keys():
                left[name] = replace(setting, only_if=conditions)
        return Space(self.name, left, self.first)

    def over(self, grid: Mapping[str, Sequence[Choice]]) -> "Space":
        """Return the space of the settings of a grid only, with its values as their levels."""
        settings: dict[str, Setting] = {}
        for name, values in grid.items():
            if name not in self.settings:
                hint = nearest(name, list(self.settings))
                raise UserError(f"{name} is not searched{hint}", "grid")
            setting = self.settings[name].over(name, values)
            only_if = {key: held for key, held in setting.only_if.items() if key in grid}
            settings[name] = replace(setting, only_if=only_if)
        return Space(self.name, settings)

    def active(self, values: Mapping[str, Any]) -> dict[str, Choice]:
        """Return the values of settings in the space that matter, given the others."""
        chosen: dict[str, Choice] = {}
        for name, setting in self.settings.items():
            if name in values and setting.matters(chosen):
                chosen[name] = values[name]
        return chosen

    def holds(self, point: Point) -> bool:
        """Return whether every value of a point lies in its distribution."""
        return all(k in self.settings and self.settings[k].holds(v) for k, v in point.items())

    @cached_property
    def size(self) -> float:
        """Return the number of points; infinite for real numbers or very many."""
        if any(setting.values() is None for setting in self.settings.values()):
            return math.inf
        # Points are counted, since with conditions the sizes do not simply multiply, but only up to
        # the limit.
        count = len(list(itertools.islice(self.points(), MANY_POINTS)))
        return count if count < MANY_POINTS else math.inf

    def grid(self) -> Iterator[dict[str, Choice]]:
        """Yield every combination of levels once, without settings that do not matter."""
        return self.points(lambda setting: dict.fromkeys(setting.levels()))

    def sobol(self, count: int, seed: int, first: int = 0) -> list[dict[str, Choice]]:
        """Return points of a scrambled Sobol sequence, from number ``first`` on."""
        from scipy.stats.qmc import Sobol

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # on counts that are no power of two
            rows = Sobol(len(self.settings), rng=seed).random(first + count)[first:]
        points = []
        for row in rows:
            fractions = dict(zip(self.settings, row, strict=True))
            values = {name: self.settings[name].at(x) for name, x in fractions.items()}
            points.append(self.active(values))
        return points

    def around(self, center: Point) -> Iterator[Point]:
        """Yield a point, and those that differ from it in the level of one setting."""
        yield center
        for name, setting in self.settings.items():
            for level in setting.levels(2):
                yield self.active({**center, name: level})

    def points(
        self, values_of: Callable[[Setting], Iterable[Choice] | None] = Setting.values
    ) -> Iterator[dict[str, Choice]]:
        """Yield every point with some values, all without real numbers by default, each once."""

        def grown(names: Sequence[str], point: dict[str, Choice]) -> Iterator[dict[str, Choice]]:
            if not names:
                yield point
            elif not self.settings[names[0]].matters(point):
                yield from grown(names[1:], point)
            else:
                for value in values_of(self.settings[names[0]]) or ():
                    yield from grown(names[1:], {**point, names[0]: value})

        return grown(list(self.settings), {})


SPACES: Registry[Space] = Registry("search space", "search_spaces", Space)


def uniform(
    low: float, high: float, *, log: bool = False, **only_if: tuple[Choice, ...]
) -> Setting:
    """Build a range of real numbers, both ends included; on a logarithmic scale with ``log``."""
    from optuna import distributions

    return Setting(distributions.FloatDistribution(low, high, log=log), _dotted(only_if))


log_uniform = partial(uniform, log=True)
"""Build a range of positive numbers on a logarithmic scale, both ends included."""


def around(*published: float) -> Setting:
    """Build the range of a rate, a penalty or another positive scale.

    It is centred, on a logarithmic scale, on the published value or on the geometric mean of
    several, and extends by ``FACTOR`` to both sides; its ends have two digits.
    """
    middle = geometric_mean(published)
    return log_uniform(float(f"{middle / FACTOR:.2g}"), float(f"{middle * FACTOR:.2g}"))


def bounded(low: float, high: float, reason: str, *, log: bool = False) -> Setting:
    """Build the declared range of a bounded setting, with the reason for its ends."""
    return replace(uniform(low, high, log=log), reason=reason)


def choice(*choices: Choice, **only_if: tuple[Choice, ...]) -> Setting:
    from optuna import distributions

    return Setting(distributions.CategoricalDistribution(choices), _dotted(only_if))


def _dotted(only_if: Mapping[str, tuple[Choice, ...]]) -> dict[str, tuple[Choice, ...]]:
    """Spell ``slot__key``, as Python must have it, as ``slot.key``."""
    return {name.replace("__", "."): values for name, values in only_if.items()}
