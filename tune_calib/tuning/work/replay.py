"""Replay a search: its trials are answered by a table of trained points instead of trained.

A table has the metrics on ``select`` of points of one space, under several seeds and for schedules
of one or more lengths. A trial is answered by a forest over settings and epochs and the noise of a
seed, or by the nearest point that no earlier suggestion has used.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel
from sklearn.ensemble import ExtraTreesRegressor

from tune_calib.engine.evaluate import Evaluation
from tune_calib.errors import RefusedError, UserError
from tune_calib.files.documents import hash_bytes
from tune_calib.files.paths import expand_path
from tune_calib.results.tables import write_results
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import REPLAYED
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.settings import restore_recipe
from tune_calib.spec.space import Point, Setting
from tune_calib.tuning.work.executor import DONE
from tune_calib.tuning.work.worker import TrialResult, Worker, summarize

KEY = "tune_calib_table"  # of the attributes of a file, as pandas writes them
ORDER = ("point", "epochs", "seed", "epoch")  # columns that identify a row
GRID = np.arange(1, 11) / 10  # shares of a schedule; curves are linear in between
_TREES = 64
_NEIGHBOURS = 20  # points whose seeds give the noise of another one
_LEAST = 1e-6  # of a loss, whose logarithm is predicted

Array = NDArray[np.float64]


class TableRecord(BaseModel):
    version: int = 1
    method: str
    given: dict[str, dict[str, Any]]  # settings by slot that are not varied
    defaults: dict[str, dict[str, Any]] = {}  # those of the recipe
    recipe: dict[str, Any] | None = None
    own_recipes: bool = False
    space: dict[str, dict[str, Any]]  # searched settings by ``slot.key``, as ``Setting.plain``
    seeds: int
    epochs: list[int]  # lengths of the schedules, ascending
    baseline: list[dict[str, float]]  # its metrics on ``select``, by ``epochs`` and network seed
    r2: dict[str, dict[str, float]] = {}  # cross-validated: by metric, ``final`` and ``curve``
    command: str = ""  # that made it
    versions: dict[str, str] = {}

    def resolve(self, seeds: Seeds) -> ResolvedRequest:
        """Return the settings that are not varied, with the seeds of a search."""
        recipe = restore_recipe(self.given, self.defaults, self.recipe)
        return ResolvedRequest(self.given, seeds, recipe, own_recipes=self.own_recipes)


def encode(space: Mapping[str, Mapping[str, Any]], points: Sequence[Point]) -> Array:
    """Encode points of a space for distances and trees, (P, F).

    Numbers are scaled to [0, 1] over their range or its logarithm, and choices are one-hot. An
    inactive setting is in the middle, or none of the choices, and has an indicator.
    """
    columns: list[NDArray[Any]] = []
    for name, plain in space.items():
        is_active = np.array([name in point for point in points], dtype=bool)
        if "choices" in plain:
            values = [point.get(name, plain) for point in points]  # the record is no choice
            for choice in plain["choices"]:
                columns.append(np.array([value == choice for value in values]) / np.sqrt(2))
        else:
            ends = np.array([plain["low"], plain["high"]], dtype=float)
            numbers = np.array([point.get(name, plain["low"]) for point in points], dtype=float)
            if plain["log"]:
                ends, numbers = np.log(ends), np.log(numbers)
            scaled = (numbers - ends[0]) / (np.ptp(ends) or 1.0)
            columns.append(np.where(is_active, scaled, 0.5))
        if plain["only_if"]:
            columns.append(is_active)
    return np.stack(columns, axis=1).astype(float)


class Forest:
    """A forest of several outputs, standardised so that all of them decide a split."""

    def __init__(self, inputs: Array, outputs: Array) -> None:
        self.mean, spread = outputs.mean(axis=0), outputs.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        self.trees = ExtraTreesRegressor(_TREES, min_samples_leaf=2, random_state=0)
        self.trees.fit(inputs, (outputs - self.mean) / self.spread)

    def predict(self, inputs: Array) -> Array:
        # The forest's own method takes forty times as long for a few rows.
        rows = inputs.astype(np.float32)
        outputs = [tree.tree_.predict(rows)[..., 0] for tree in self.trees.estimators_]
        predicted: Array = np.mean(outputs, axis=0) * self.spread + self.mean
        return predicted


@dataclass(frozen=True, eq=False)
class Table:
    """N points under S seeds by L schedules; M metrics at G shares of a schedule, ``GRID``."""

    path: str
    digest: str
    record: TableRecord
    metrics: tuple[str, ...]
    numbers: list[int]  # of the points in the file
    points: list[dict[str, Any]]
    curves: Array  # (N, L, S, M, G); losses are logarithms, and diverged seeds have the worst value
    is_done: NDArray[np.bool_]  # (N, L, S)

    def refuse_other(
        self, digest: str, method: str, space: Mapping[str, Setting], metrics: Iterable[str]
    ) -> None:
        """Refuse a search that began with another table, or of another space or other metrics."""
        path = self.path
        if self.digest != digest:
            raise UserError(f"{path} has changed since this search began; restore it")
        if self.record.method != method:
            raise UserError(f"{path} is a table of {self.record.method}, not {method}")
        if self.record.space != {name: setting.plain() for name, setting in space.items()}:
            raise UserError(
                f"{path} was made over another space of {method}; leave `grid` out, or use the "
                "version of the program that made it"
            )
        for name in metrics:
            if name not in self.metrics:
                names = ", ".join(self.metrics)
                raise UserError(f"{path} has no {name}; it has {names}", setting="metric")

    @cached_property
    def encoded(self) -> Array:
        return encode(self.record.space, self.points)

    @cached_property
    def residuals(self) -> Array:
        """Return the deviations of seeds from their mean, scaled to those of a single seed."""
        seeds = self.record.seeds
        deviations = self.curves - self.curves.mean(axis=2, keepdims=True)
        return np.asarray(deviations * np.sqrt(seeds / max(1, seeds - 1)))

    def list_cells(self) -> tuple[Array, Array]:
        """Return inputs and outputs of the forest, each length of each point in a row.

        The outputs are the mean curves of the seeds, and the share of seeds that are done.
        """
        lengths = self.record.epochs
        inputs = build_inputs(np.repeat(self.encoded, len(lengths), 0), lengths * len(self.points))
        means = self.curves.mean(axis=2).reshape(len(inputs), -1)
        return inputs, np.column_stack([means, self.is_done.mean(axis=2).ravel()])

    @cached_property
    def forest(self) -> Forest:
        return Forest(*self.list_cells())

    def find_length(self, epochs: int) -> int:
        """Return the index of the schedule of the nearest length, on a logarithmic scale."""
        return int(np.abs(np.log(np.array(self.record.epochs) / epochs)).argmin())

    def find_nearest(self, encoded: Array, count: int) -> NDArray[np.intp]:
        """Return the indices of the points that are nearest to one, the nearest first."""
        distances = ((self.encoded - encoded) ** 2).sum(axis=1)
        return np.argsort(distances, kind="stable")[:count]


def build_inputs(encoded: Array, epochs: Sequence[int]) -> Array:
    return np.column_stack([encoded, np.log2(epochs)])


def restore(curves: Array, metrics: Sequence[str]) -> Array:
    """Return the values of metrics from curves (..., M, G), in which losses are logarithms."""
    is_loss = _find_signs(metrics)[:, None] > 0
    return np.where(is_loss, np.exp(curves), np.clip(curves, 0.0, 1.0))


def load_table(path: str) -> Table:
    try:
        return _parse(path, expand_path(path).read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "replay") from None


@lru_cache(maxsize=4)
def _parse(path: str, data: bytes) -> Table:
    try:
        frame = pd.read_parquet(BytesIO(data))
        record = TableRecord.model_validate(frame.attrs[KEY])
        rows = frame.sort_values(list(ORDER))
        names = [str(name) for name in rows if str(name).startswith("select/")]
        metrics = [name.partition("/")[2] for name in names]
        settings = dict(zip(rows["point"], rows["settings"], strict=True))
        points = list(map(json.loads, settings.values()))
        values = rows[names].to_numpy(dtype=float)
        epochs, is_done = rows["epochs"].to_numpy(), rows["status"].to_numpy() == "done"
        parts, done_parts = [], []
        for length in record.epochs:
            is_row, shape = epochs == length, (len(points), record.seeds, length)
            parts.append(_interpolate(values[is_row].reshape(*shape, -1), metrics))
            done_parts.append(is_done[is_row].reshape(shape)[..., 0])
    except (OSError, ValueError, KeyError):
        raise UserError(f"{path} is no table for replays: see docs/benchmarks", "replay") from None
    curves, is_done = np.stack(parts, axis=1), np.stack(done_parts, axis=1)
    signs = _find_signs(metrics)[:, None]
    worst = signs * (signs * curves[is_done]).max(axis=0)
    return Table(
        path=path,
        digest=hash_bytes(data)[:16],
        record=record,
        metrics=tuple(metrics),
        numbers=list(settings),
        points=points,
        curves=np.where(is_done[..., None, None], curves, worst),
        is_done=is_done,
    )


def _find_signs(metrics: Sequence[str]) -> Array:
    """Return 1 for each loss and -1 for each gain."""
    return np.array([1.0 if METRICS[name].is_less_better else -1.0 for name in metrics])


def _interpolate(values: Array, metrics: Sequence[str]) -> Array:
    """Return curves on the grid, (N, S, M, G), from values of each epoch, (N, S, E, M)."""
    is_loss, length = _find_signs(metrics) > 0, values.shape[2]
    values = np.where(is_loss, np.log(np.maximum(values, _LEAST)), values)
    shares = np.arange(1, length + 1) / length
    weights = np.stack([np.interp(GRID, shares, unit) for unit in np.eye(length)])
    curves: Array = np.einsum("nsem,eg->nsmg", values, weights)
    return curves


class ReplayWorker(Worker):
    """Answers the trials of a job by a table; it opens neither data nor a store."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.used: list[int] = []  # nearest points of the table, by suggestion
        self.predicted: dict[tuple[int, int], Array] = {}  # by suggestion and epochs
        super().__init__(config)

    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        self.table = load_table(self.provenance.replay["path"])
        self.uses_nearest = self.provenance.replay["answer"] == "nearest"
        points: Mapping[int, Point] = config["job"].get("points", {})
        encoded = encode(self.table.record.space, list(points.values()))
        self.encoded = dict(zip(points, encoded, strict=True))  # by suggestion
        while self.uses_nearest and len(self.used) < len(points):
            order = self.table.find_nearest(self.encoded[len(self.used)], count=len(self.used) + 1)
            unused = [index for index in order.tolist() if index not in self.used]
            if not unused:
                raise RefusedError(
                    f"{self.table.path} has {len(self.used)} points, each of which answers one "
                    "suggestion: set fewer `trials`, or `replay_answer` to surrogate"
                )
            self.used.append(unused[0])

    def step(self) -> dict[str, Any]:
        results = []
        for trial in self.trials:
            answer = self._answer_baseline if trial.rung < 0 else self._answer
            results.append((trial, answer(trial)))
        write_results(self.out, self.name, self.rows(results, device=REPLAYED))
        return {"epoch": results[0][1].epoch, **summarize(results), DONE: True}

    def _answer_baseline(self, trial: PlannedTrial) -> TrialResult:
        record = self.table.record
        length = record.epochs[self.table.find_length(max(1, trial.spec.network.epochs))]
        rows = [row for row in record.baseline if row["epochs"] == length]
        if trial.spec.network.is_frozen:
            rows = record.baseline
        row = rows[trial.spec.network.seed % len(rows)]
        metrics = {column("select", name): row[name] for name in self.table.metrics}
        epochs = trial.spec.network.epochs
        return TrialResult("done", epochs, [], evaluation=Evaluation(metrics, {}, {}))

    def _answer(self, trial: PlannedTrial) -> TrialResult:
        table, trained = self.table, trial.spec.head or trial.spec.network
        length, seed, epochs = table.find_length(trained.epochs), trained.seed, trained.epochs
        is_measured = self.uses_nearest and seed < table.record.seeds
        if self.uses_nearest:
            seeds: Any = [seed] if is_measured else slice(None)
            cell = self.used[trial.rung], length, seeds
            curves, is_done = table.curves[cell].mean(axis=0), bool(table.is_done[cell].all())
        else:
            curves, is_done = self._predict(trial.rung, epochs)
        if not is_done:
            return TrialResult("diverged", epochs, [], message="its replay diverged")
        if not is_measured:  # the noise of a seed, by the spec, so that it repeats
            order = table.find_nearest(self.encoded[trial.rung], _NEIGHBOURS)
            noise = table.residuals[order, length].reshape(-1, *curves.shape)
            curves = curves + np.random.default_rng(int(trial.spec.hash, 16)).choice(noise)
        shares = np.arange(1, epochs + 1) / epochs
        names, by_epoch = [column("select", name) for name in table.metrics], []
        for metric in restore(curves, table.metrics):
            by_epoch.append(np.interp(shares, GRID, metric).tolist())
        reports = [dict(zip(names, values, strict=True)) for values in zip(*by_epoch, strict=True)]
        return TrialResult("done", epochs, reports, evaluation=Evaluation(reports[-1], {}, {}))

    def _predict(self, number: int, epochs: int) -> tuple[Array, bool]:
        """Return the mean curves of a suggestion, and whether it is done; all of a job at once."""
        if (number, epochs) not in self.predicted:
            trained = [(trial.rung, trial.spec.head or trial.spec.network) for trial in self.trials]
            keys = sorted({(rung, slot.epochs) for rung, slot in trained})
            numbers, lengths = zip(*keys, strict=True)
            encoded = [self.encoded[number] for number in numbers]
            inputs = build_inputs(np.stack(encoded), lengths)
            self.predicted |= zip(keys, self.table.forest.predict(inputs), strict=True)
        *curves, share = self.predicted[number, epochs]
        return np.reshape(curves, (len(self.table.metrics), len(GRID))), share > 0.5
