"""Trial specs of the points of a method's search space."""

from collections.abc import Mapping
from typing import Any

from tune_calib.errors import UserError
from tune_calib.results.selection import BASELINE
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.ladder import PlannedTrial, Rung, build_spec, refuse_unknown
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.space import SPACES, Choice, Point, Space
from tune_calib.spec.trial import TrialSpec

NO_RUNG = -1


class Candidates:
    """The trials of a search: each point of the space of a method under every seed."""

    def __init__(self, method: str, resolved: ResolvedRequest) -> None:
        self.kind = METHODS[method].kind
        if self.kind == "network" and resolved.is_frozen:
            raise UserError(
                f"a search of {method} trains networks, and a frozen one (network.epochs=0) is not "
                "trained; search a head or post-hoc method",
                "network.epochs",
            )
        if self.kind == "posthoc" and not METHODS[method].params.model_fields:
            raise UserError(f"{method} has no settings to search; run tune-calib compare {method}")
        self.method = method
        self.resolved = resolved
        refuse_unknown([self.rung({}), Rung(BASELINE, "")], resolved.overrides)
        fixed = {
            f"{slot}.{key}": v for slot, own in resolved.overrides.items() for key, v in own.items()
        }
        self.space: Space = SPACES[method].without(fixed)
        plain = self.trials({}, 0)[0].spec
        self.defaults: dict[str, Any] = {name: _read(plain, name) for name in self.space.settings}

    def plugins(self) -> set[str]:
        """Content hashes of the plug-ins that they rest on."""
        backbones = self.space.settings.get("network.backbone")
        recipe = self.resolved.recipe
        origins = {
            SPACES.origin(self.method),
            RECIPES.origin(recipe.name) if recipe else None,
            *(BACKBONES.origin(str(name)) for name in (backbones and backbones.values()) or ()),
        }
        specs = [trial.spec for trial in (*self.baseline(), *self.trials({}, 0))]
        own = {each for spec in specs for each in spec.plugins}
        return own | {origin for origin in origins if origin is not None}

    def refuse_empty(self) -> None:
        """Refuse a search that has nothing to choose."""
        if not self.space.settings:
            raise UserError(
                f"every setting of the space of {self.method} is given: nothing is left to search; "
                f"leave one out, or run tune-calib compare {self.method}"
            )

    def first(self) -> list[dict[str, Choice]]:
        """Return the method's defaults on the data set, then other published values, none twice."""
        points: list[dict[str, Choice]] = []
        for published in ({}, *self.space.first):
            point = self.space.active({**self.defaults, **published})
            if self.space.holds(point) and point not in points:
                points.append(point)
        return points

    def trials(self, point: Point, number: int) -> list[PlannedTrial]:
        """Build the trials of a point, one for each pair of seeds."""
        return self._planned(self.rung(point), number, f"trial {number}")

    def baseline(self) -> list[PlannedTrial]:
        """Build the network trained with cross entropy under its own head, for each seed."""
        trials = self._planned(Rung(BASELINE, ""), NO_RUNG, BASELINE)
        return list({trial.spec.hash: trial for trial in trials}.values())

    def rung(self, point: Point, label: str = "") -> Rung:
        """Build the rung of a point."""
        values = {name.partition(".")[2]: value for name, value in point.items()}
        return Rung(label, label, {self.kind: {"method": self.method, **values}}, kind="variant")

    def _planned(self, rung: Rung, number: int, label: str) -> list[PlannedTrial]:
        return [
            PlannedTrial(build_spec(rung, self.resolved, pair), number, label)
            for pair in self.resolved.seeds.pairs()
        ]


def _read(spec: TrialSpec, name: str) -> Any:
    """Return the value of ``slot.key`` in a spec; the key is of the method or of its slot."""
    slot, _, key = name.partition(".")
    filled = getattr(spec, slot)
    params: Mapping[str, Any] = filled.params.model_dump(mode="json")
    return params[key] if key in params else getattr(filled, key)
