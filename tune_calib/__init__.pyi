"""The public Python names; made by ``make generate``."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from tune_calib.api.opened import OpenSearch, OpenRun, OpenExperiment
from tune_calib.api.statistics import Statistics
from tune_calib.library.calibrated import load_calibrated as load_calibrated
from tune_calib.library.estimators import CalibratedClassifier as CalibratedClassifier
from tune_calib.library.estimators import PostHocEstimator
from tune_calib.library.pool import calibrate_pool as calibrate_pool
from tune_calib.library.pool import save_calibrated as save_calibrated
from tune_calib.library.report import calibration_report as calibration_report
from tune_calib.library.retrained import RetrainedHead as RetrainedHead
from tune_calib.spec import plugins as plugins

ESTIMATORS: tuple[str, ...]

def ablate(
    ladder: str | None = None,
    *,
    dataset: str = 'digits',
    imported: str | None = None,
    data_root: str | PathLike[str] | None = None,
    dataset_title: str | PathLike[str] | None = None,
    holdout: str | None = None,
    norm: str | list[list[float]] | None = None,
    backbone: str | None = None,
    weights: str | PathLike[str] | None = None,
    epochs: int | None = None,
    head_epochs: int | None = None,
    recipe: str | None = None,
    set: dict[str, Any] | None = None,
    portable: bool = False,
    seeds: int | None = None,
    network_seeds: int | None = None,
    head_seeds: int | None = None,
    out: str | PathLike[str] | None = None,
    store: str | PathLike[str] | None = None,
    address: str | None = None,
    gpus: float | Literal['auto'] = 0.0,
    accept_code: bool = False,
    max_hours: float | None = None,
    shift: str | Sequence[str] = (),
    bootstrap: int = 0,
    split_seeds: int | None = None,
    calib_sizes: str | int | Sequence[int] = (),
    profile: bool = False,
    path: str | PathLike[str] | None = None,
    controls: bool = False,
    design: Literal['incremental', 'leave-one-out', 'add-one', 'factorial', 'pairs'] = 'incremental',
    posthoc: str | None = None,
    log: str | Sequence[str] | None = None,
    plugin: str | Sequence[str] | None = None,
) -> OpenRun: ...
def compare(
    methods: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] = (),
    *,
    dataset: str = 'digits',
    imported: str | None = None,
    data_root: str | PathLike[str] | None = None,
    dataset_title: str | PathLike[str] | None = None,
    holdout: str | None = None,
    norm: str | list[list[float]] | None = None,
    backbone: str | None = None,
    weights: str | PathLike[str] | None = None,
    epochs: int | None = None,
    head_epochs: int | None = None,
    recipe: str | None = None,
    set: dict[str, Any] | None = None,
    portable: bool = False,
    seeds: int | None = None,
    network_seeds: int | None = None,
    head_seeds: int | None = None,
    out: str | PathLike[str] | None = None,
    store: str | PathLike[str] | None = None,
    address: str | None = None,
    gpus: float | Literal['auto'] = 0.0,
    accept_code: bool = False,
    max_hours: float | None = None,
    shift: str | Sequence[str] = (),
    bootstrap: int = 0,
    split_seeds: int | None = None,
    calib_sizes: str | int | Sequence[int] = (),
    profile: bool = False,
    tune: int | None = None,
    metric: str = 'nll',
    guard: float = 0.01,
    tune_seeds: int = 1,
    sampler_seed: int = 0,
    race: bool = False,
    halving: int | None = None,
    all: Literal['network', 'head', 'posthoc'] | None = None,
    own_recipes: bool = False,
    grid: dict[str, list[Any]] | None = None,
    log: str | Sequence[str] | None = None,
    plugin: str | Sequence[str] | None = None,
) -> OpenRun: ...
def search(
    method: str,
    *,
    dataset: str = 'digits',
    imported: str | None = None,
    data_root: str | PathLike[str] | None = None,
    dataset_title: str | PathLike[str] | None = None,
    holdout: str | None = None,
    norm: str | list[list[float]] | None = None,
    backbone: str | None = None,
    weights: str | PathLike[str] | None = None,
    epochs: int | None = None,
    head_epochs: int | None = None,
    recipe: str | None = None,
    set: dict[str, Any] | None = None,
    portable: bool = False,
    seeds: int | None = None,
    network_seeds: int | None = None,
    head_seeds: int | None = None,
    out: str | PathLike[str] | None = None,
    store: str | PathLike[str] | None = None,
    address: str | None = None,
    gpus: float | Literal['auto'] = 0.0,
    accept_code: bool = False,
    sampler: str = 'tpe',
    around: str | PathLike[str] | None = None,
    sampler_seed: int = 0,
    metric: str | Sequence[str] = ('ece',),
    guard: float = 0.01,
    population: int = 8,
    at_once: int | None = None,
    trials: int = 64,
    grid: dict[str, list[Any]] | None = None,
    replay: str | PathLike[str] | None = None,
    replay_answer: Literal['surrogate', 'nearest'] = 'surrogate',
    race: bool = False,
    halving: int | None = None,
    reuse: str | Sequence[str] = (),
    join: bool = False,
    study_storage: str | None = None,
    max_hours: float | None = None,
    retry: Literal['crashed'] | None = None,
    own_recipes: bool = False,
    worker: bool = False,
    log: str | Sequence[str] | None = None,
    plugin: str | Sequence[str] | None = None,
) -> OpenSearch: ...
def evaluate(
    out: str | PathLike[str],
    *,
    max_hours: float | None = None,
    shift: str | Sequence[str] = (),
    bootstrap: int = 0,
    study_storage: str | None = None,
    accept_code: bool = False,
    address: str | None = None,
    seeds: int = 5,
    extend: bool = False,
    log: str | Sequence[str] | None = None,
    plugin: str | Sequence[str] | None = None,
) -> OpenRun: ...
def run(
    file: str | PathLike[str],
    *,
    retry: Literal['crashed'] | None = None,
    accept_code: bool = False,
    address: str | None = None,
    log: str | Sequence[str] | None = None,
    plugin: str | Sequence[str] | None = None,
) -> OpenExperiment: ...
def open_results(
    out: str | PathLike[str],
    *,
    study_storage: str | None = None,
) -> OpenRun | OpenSearch | OpenExperiment: ...
def ranks(
    folders: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    *,
    published: str | None = None,
    metric: str = 'ece',
    ranking: Literal['competition', 'average'] = 'competition',
    split: str | None = None,
    where: Mapping[str, str | Sequence[str]] | None = None,
) -> Statistics: ...
def averages(
    folders: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    *,
    published: str | None = None,
    metric: str | Sequence[str] = ('accuracy', 'ece', 'o_ece', 'u_ece'),
    split: str | None = None,
    where: Mapping[str, str | Sequence[str]] | None = None,
) -> Statistics: ...
def significance(
    folders: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    *,
    published: str | None = None,
    metric: str = 'ece',
    test: Literal['wilcoxon', 't', 'friedman'] = 'wilcoxon',
    baseline: str | None = None,
    split: str | None = None,
    margin: float | None = None,
    blocks: Literal['columns', 'seeds'] = 'columns',
) -> Statistics: ...
def benchmark(
    folders: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    *,
    baseline: str | None = None,
    unit: Literal['datasets', 'experiments'] = 'datasets',
) -> Statistics: ...
def diff(
    first: str | PathLike[str],
    second: str | PathLike[str],
    *,
    metric: str | Sequence[str] = (),
    split: str | None = None,
    margin: float | None = None,
) -> Statistics: ...
def interaction(
    folder: str | PathLike[str],
    *,
    of: str,
    with_: str,
    metric: str = 'ece',
    margin: float | None = None,
) -> Statistics: ...
def effects(
    folder: str | PathLike[str],
    *,
    metric: str = 'ece',
    margin: float | None = None,
) -> Statistics: ...
def sensitivity(
    folder: str | PathLike[str],
) -> Statistics: ...
def importance(
    folder: str | PathLike[str],
) -> Statistics: ...
class BetaCalibration(PostHocEstimator): ...
class DensityAwareScaling(PostHocEstimator):
    def __init__(self, *, neighbours: int = 10) -> None: ...
class DiagonalOrderPreserving(PostHocEstimator):
    def __init__(self, *, width: int = 10, weight_decay: float = 0.0005) -> None: ...
class DirichletCalibration(PostHocEstimator):
    def __init__(self, *, top_versus_all: bool = False, off_diagonal: float | None = None, intercept: float | None = None) -> None: ...
class EnsembleTemperatureScaling(PostHocEstimator):
    def __init__(self, *, loss: Literal['brier', 'nll'] = 'brier') -> None: ...
class FocalTemperatureScaling(PostHocEstimator):
    def __init__(self, *, gamma: float | None = None) -> None: ...
class HistogramBinning(PostHocEstimator):
    def __init__(self, *, top_versus_all: bool = False, bins: int = 10, binning: Literal['equal_mass', 'equal_width'] = 'equal_mass') -> None: ...
class InvariantOrderPreserving(PostHocEstimator):
    def __init__(self, *, width: int = 10, weight_decay: float = 0.0005) -> None: ...
class IsotonicCalibration(PostHocEstimator):
    def __init__(self, *, top_versus_all: bool = False) -> None: ...
class MarginTemperature(PostHocEstimator): ...
class MatrixScaling(PostHocEstimator):
    def __init__(self, *, top_versus_all: bool = False, off_diagonal: float | None = None, intercept: float | None = None) -> None: ...
class MeanConfidence(PostHocEstimator): ...
class MulticlassIsotonicCalibration(PostHocEstimator): ...
class OneVersusAllIsotonic(PostHocEstimator): ...
class ParametrisedTemperature(PostHocEstimator):
    def __init__(self, *, layers: int = 2, nodes: int = 5, top: int = 10, weight_decay: float = 0.0) -> None: ...
class PlainOrderPreserving(PostHocEstimator):
    def __init__(self, *, width: int = 2, weight_decay: float = 0.0005) -> None: ...
class ProximityInformedCalibration(PostHocEstimator):
    def __init__(self, *, neighbours: int = 10, groups: int = 5) -> None: ...
class ScaledOneVersusAllIsotonic(PostHocEstimator): ...
class SplineCalibration(PostHocEstimator):
    def __init__(self, *, knots: int = 6) -> None: ...
class StructuredMatrixScaling(PostHocEstimator):
    def __init__(self, *, lambda_intercept: float = 1.0, lambda_diagonal: float = 1.0, lambda_off_diagonal: float = 1.0) -> None: ...
class StructuredVectorScaling(PostHocEstimator):
    def __init__(self, *, lambda_intercept: float = 1.0, lambda_diagonal: float = 1.0) -> None: ...
class TemperatureScaling(PostHocEstimator):
    def __init__(self, *, top_versus_all: bool = False, fit: Literal['nll', 'grid_ece', 'grid_nll'] = 'nll') -> None: ...
class ToplabelHistogram(PostHocEstimator):
    def __init__(self, *, points_per_bin: int = 50) -> None: ...
class VectorScaling(PostHocEstimator):
    def __init__(self, *, top_versus_all: bool = False) -> None: ...