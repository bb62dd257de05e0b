"""Importance of the settings of a search, with intervals from resampled suggestions.

PED-ANOVA (Watanabe et al., 2023) compares the best suggestions with all. fANOVA (Hutter et al.,
2014) splits the variance of a surrogate over the space into settings and pairs of them. Settings
are ranked only if the surrogate predicts suggestions that it has not seen.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict

from tune_calib.results.manifests import Importance
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.spec.space import Choice, Point, Space
from tune_calib.tuning.search.state import SearchState

TOP_SHARE, LEAST_TOP, LEAST_DONE, LEAST_R2 = 0.1, 5, 30, 0.5
_DRAWS, _POINTS = 20, 128  # of suggestions for intervals; of the space, to average over
_PAIRED = 5  # most important settings, of which all pairs are examined

Array = NDArray[np.float64]


class Surrogate:
    """A random forest over a space, whose variance is split into settings."""

    def __init__(self, space: Space, points: Sequence[Point]) -> None:
        random = np.random.default_rng(0)
        self.names = list(space.settings)
        self.points = _encode(space, points)
        drawn: list[dict[str, Choice]] = [{} for _ in range(_POINTS)]
        for name, setting in space.settings.items():
            levels = setting.levels(2)
            for point, place in zip(drawn, random.permutation(_POINTS), strict=True):
                point[name] = levels[place % len(levels)]  # each level equally often
        self.background = _encode(space, list(map(space.active, drawn)))
        self.forest = RandomForestRegressor(n_estimators=32, random_state=0)

    def compute_r2(self, values: Array) -> float:
        folds = KFold(5, shuffle=True, random_state=0)
        return float(
            r2_score(values, cross_val_predict(self.forest, self.points, values, cv=folds))
        )

    def split(self, values: Array, rows: Array, paired: Sequence[str]) -> dict[str, float]:
        """Return the share of the variance of each setting and of pairs, beyond those of both."""
        groups = [*((name,) for name in self.names), *combinations(paired, 2)]
        matrices = []
        for group in groups:
            columns = [self.names.index(name) for name in group]
            levels = np.unique(self.background[:, columns], axis=0)
            matrix = np.tile(self.background, (len(levels), 1))
            matrix[:, columns] = np.repeat(levels, _POINTS, axis=0)
            matrices.append(matrix)
        self.forest.fit(self.points[rows], values[rows])
        predicted = self.forest.predict(np.concatenate(matrices)).reshape(-1, _POINTS)
        counts = np.cumsum([len(matrix) // _POINTS for matrix in matrices])
        shares: dict[str, float] = {}
        for group, part in zip(groups, np.split(predicted, counts[:-1]), strict=True):
            alone = sum(shares[name] for name in group if len(group) > 1)
            share = np.var(part.mean(axis=1)) / (np.var(part) or 1.0)
            shares[" x ".join(group)] = float(share) - alone
        return shares


def _encode(space: Space, points: Sequence[Point]) -> Array:
    """Return a column for each setting: numbers, or positions of choices; -1 if it is inactive."""
    matrix = np.full((len(points), len(space.settings)), -1.0)
    for column, (name, setting) in enumerate(space.settings.items()):
        choices = list(getattr(setting.distribution, "choices", ()))
        for row, point in enumerate(points):
            if name in point:
                value = point[name]
                matrix[row, column] = choices.index(value) if choices else value
    return matrix


def compute_importance(state: SearchState) -> Importance:
    """Compute the importance of settings, regardless of the guard."""
    numbers = [n for n, result in sorted(state.results.items()) if result.status == "done"]
    done, space, statements = len(numbers), state.candidates.space, list[str]()
    statement = ""
    if SAMPLERS[state.definition.sampler].is_local:
        statement = "suggestions that change one setting at a time do not cover the space"
    elif done < LEAST_DONE:
        statement = f"{done} suggestions are done, but importance needs at least {LEAST_DONE}"
    if statement:
        return Importance(done=done, top=0, shares={}, statement=statement)
    surrogate = Surrogate(space, [trial.params for trial in state.study.suggestions(numbers)])
    top = max(LEAST_TOP, round(TOP_SHARE * done))
    draws = [np.arange(done), *np.random.default_rng(0).integers(done, size=(_DRAWS, done))]
    shares, intervals, variances, r2 = {}, {}, {}, {}
    for index, metric in enumerate(state.objective.metrics):
        values = np.array([state.results[number].values[index] for number in numbers])
        r2[metric] = surrogate.compute_r2(values)
        if not r2[metric] >= LEAST_R2:
            statements.append(
                f"no ranking for {METRICS[metric].title}: a surrogate of the suggestions has an "
                f"R2 of {r2[metric]:.2f}, below {LEAST_R2}"
            )
            continue
        if not np.ptp(values):
            statements.append("no setting distinguishes the best suggestions from the others")
            continue
        samples = []
        for draw in draws:
            losses = state.objective.signs[index] * values[draw]
            divergences = state.study.divergences(losses, top / done, [numbers[n] for n in draw])
            total = sum(divergences.values()) or 1.0
            samples.append({name: value / total for name, value in divergences.items()})
        paired = sorted(samples[0], key=lambda name: (-samples[0][name], name))
        shares[metric] = {name: samples[0][name] for name in paired}
        intervals[metric] = {name: ends[1:] for name, ends in _summarise(samples).items()}
        variances[metric] = _summarise(
            [surrogate.split(values, draw, paired[:_PAIRED]) for draw in draws]
        )
    return Importance(
        done=done, top=top, shares=shares, intervals=intervals, variances=variances, r2=r2,
        statement="; ".join(statements),
    )  # fmt: skip


def _summarise(samples: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Return each share of the first sample with the 5 and 95 % quantiles of the others."""
    summary = {}
    for name, share in samples[0].items():
        low, high = np.quantile([sample.get(name, 0.0) for sample in samples[1:]], (0.05, 0.95))
        summary[name] = [share, float(low), float(high)]
    return summary
