"""Comparisons over draws of the splits and over sizes of calib."""

import json
from itertools import product

import numpy as np
import pytest
from torch.nn.functional import cross_entropy

import tune_calib
from analysis.compare.gather import over_seeds
from analysis.figure import LADDER_FIGURES
from analysis.ladder import shift_tables
from analysis.ladder.results import LadderResults
from analysis.ladder.tables import ladder
from analysis.load import load
from analysis.tidy import tidy
from tests.imports.files import features, head, write
from tests.support import here
from tune_calib.engine.bank import FeatureBank
from tune_calib.engine.evaluate import refuse_seen
from tune_calib.engine.imports import open_import
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.request import CompareRequest, build_request
from tune_calib.spec.resolve import resolve_ladder
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.jobs import make_plan

SIZES = {"train": 60, "calib": 120, "test": 80}
SEEDS, SUBSETS = 3, (8, 20)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A store with features and logits named `mine`, as keywords of a comparison."""
    folder = tmp_path_factory.mktemp("import")
    words = ["import", "mine", "--store", folder / "store"]
    files = {"head": write(folder / "head.npz", **head())}
    for seed, (name, samples) in enumerate(SIZES.items()):
        files[name] = write(folder / f"{name}.npz", **features(samples, seed=seed))
    for name, file in files.items():
        words += [f"--{name}", file]
    done = here(*words)
    assert done.returncode == 0, done.stderr
    return {"imported": "mine", "store": folder / "store", "address": "none"}


@pytest.fixture(scope="module")
def run(imported, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    methods = ["ce", "temperature", "vector", "retrain+temperature"]
    settings = {"head.epochs": 2, "head.select": "min_val_nll"}
    tune_calib.compare(
        methods, **imported, out=out, split_seeds=SEEDS, calib_sizes=SUBSETS, set=settings
    )
    return out


def trials(out):
    table = read_table(out, "trials").to_pylist()
    return {(r["rung_label"], r["split_seed"], r["calib_samples"]): r for r in table}


def test_a_method_has_a_trial_for_each_draw_and_size_that_it_depends_on(run):
    expected = set(product(["temperature", "vector"], range(SEEDS), [*SUBSETS, 60]))
    expected |= {("ce", None, 60)}
    rows_of_run = trials(run)
    assert {key for key in rows_of_run if not key[0].startswith("retrain")} == expected
    assert len([key for key in rows_of_run if key[0].startswith("retrain")]) == SEEDS * 3
    assert len({row["network_id"] for row in rows_of_run.values()}) == 1
    # Test never moves: a temperature keeps the predictions.
    accuracies = {
        row["test/accuracy"] for key, row in rows_of_run.items() if key[0] == "temperature"
    }
    assert accuracies == {rows_of_run["ce", None, 60]["test/accuracy"]}
    # The slowest metric is left out of draws.
    assert rows_of_run["ce", None, 60]["test/nll_refinement"] is not None
    assert rows_of_run["temperature", 0, 60]["test/nll_refinement"] is None


def test_trials_of_a_draw_are_those_of_its_setting(run, imported, tmp_path):
    # In a run of one draw, no batch of heads or fits holds another draw.
    settings = {"head.epochs": 2, "head.select": "min_val_nll"}
    settings |= {"data.split_seed": 1, "data.calib_size": 20}
    methods = ["temperature", "retrain+temperature"]
    tune_calib.compare(methods, **imported, out=tmp_path, set=settings)
    for label, alone in zip(methods, read_table(tmp_path, "trials").to_pylist(), strict=True):
        row = trials(run)[label, 1, 20]
        assert row["spec_hash"] == alone["spec_hash"]
        assert {k: v for k, v in row.items() if k.startswith(("select/", "test/"))} == {
            k: v for k, v in alone.items() if k.startswith(("select/", "test/"))
        }


def test_a_fit_uses_the_subset_of_its_draw(run, imported):
    """The recorded temperature is optimal for the samples that the data slot describes."""
    row = trials(run)["temperature", 2, 20]
    spec = TrialSpec.build(
        data=json.loads(row["data"]),
        network=json.loads(row["network"]),
        posthoc=json.loads(row["posthoc"]),
    )
    bank = open_import(FeatureBank, spec.data.imported, Store(imported["store"]))
    calib = bank.for_trial(spec).calib()
    assert len(calib.labels) == 20
    curves = read_table(run, "curves").to_pylist()
    temperature = next(
        point["value"]
        for point in curves
        if point["spec_hash"] == row["spec_hash"] and point["name"] == "temperature"
    )
    losses = []
    for factor in (0.99, 1, 1.01):
        scaled = calib.logits.double() / (temperature * factor)
        losses.append(float(cross_entropy(scaled, calib.labels)))
    assert losses[1] == min(losses)
    scaled = bank.test().logits.double() / temperature
    expected = float(cross_entropy(scaled, bank.test().labels))
    assert row["test/nll"] == pytest.approx(expected)


def test_further_draws_keep_earlier_rows(imported, tmp_path):
    keywords = {**imported, "out": tmp_path / "out"}
    tune_calib.compare(["ce", "temperature"], **keywords, split_seeds=1)
    first = trials(tmp_path / "out")
    tune_calib.compare(["ce", "temperature"], **keywords, split_seeds=3, calib_sizes=[10])
    later = trials(tmp_path / "out")
    assert len(later) == 1 + 3 * 2
    assert {key: later[key] for key in first} == first
    manifest = load(tmp_path / "out").manifest
    assert manifest.split_seeds == [0, 1, 2]


def test_a_draw_is_evaluated_with_bootstrap_intervals(imported, tmp_path):
    tune_calib.compare(["temperature"], **imported, out=tmp_path, split_seeds=2, bootstrap=100)
    intervals = read_table(tmp_path, "intervals").to_pylist()
    rows = {row["spec_hash"]: row for row in read_table(tmp_path, "trials").to_pylist()}
    sizes = [row for row in intervals if row["metric"] == "conformal_size"]
    assert len(sizes) == 2
    for interval in sizes:  # with the threshold of its own calib
        value = rows[interval["spec_hash"]]["test/conformal_size"]
        assert interval["lower"] <= value <= interval["upper"]


# --- the plan


def plan(**request):
    ladder, resolved = resolve_ladder(build_request(CompareRequest, request))
    return expand(ladder, resolved)


def test_a_trained_network_is_trained_for_each_draw_but_not_for_each_size():
    planned = plan(methods=["ce", "temperature"], split_seeds=2, calib_sizes=[20, 100])
    assert len(planned) == 2 + 2 * 3
    work = make_plan(planned, set())
    assert len(work.networks) == 2
    # Fits to subsets of calib follow the network.
    assert [len(job.trials) for job in work.head_batches] == [2, 2]
    assert {job.kind for job in work.head_batches} == {"network"}


def test_heads_whose_epoch_is_not_selected_are_trained_once_for_all_draws():
    for select, batches in (("last", 1), ("min_val_nll", 3)):
        settings = {"data": {"imported": RECORD}, "head": {"epochs": 1, "select": select}}
        request = ResolvedRequest(settings, split_seeds=(0, 1, 2))
        planned = expand(build_comparison(["retrain"]), request)
        assert len(make_plan(planned, set()).head_batches) == batches


RECORD = {
    "digest": "0" * 16, "classes": 4, "width": 6, "train": 60, "select": 60, "calib": 60,
    "test": 80, "is_cut": True, "outputs": "head",
}  # fmt: skip


@pytest.mark.parametrize(
    ("request_fields", "message"),
    [
        ({"split_seeds": 2, "set": {"data.split_seed": 1}}, "`split_seeds` varies"),
        ({"calib_sizes": [20], "set": {"data.calib_size": 20}}, "`calib_sizes` varies"),
        ({"calib_sizes": "20,x"}, "'x' is not a whole number"),
        ({"calib_sizes": [5]}, "less than the number of classes"),
    ],
)
def test_meaningless_draws_are_refused(request_fields, message):
    with pytest.raises(UserError, match=message):
        plan(methods=["temperature"], **request_fields)


def test_a_subset_larger_than_calib_is_refused_before_anything_is_trained(tmp_path):
    done = here(
        "compare", "temperature", "--calib-sizes", "20,300", "--out", tmp_path, "--address", "none"
    )
    assert done.returncode == 2
    assert "data.calib_size is 300, but calib has only 250 samples" in done.stderr
    assert not (tmp_path / "sweep.json").exists()


def test_a_network_that_was_trained_on_another_draw_is_refused():
    made = TrialSpec.build(data={"split_seed": 1}, network={})
    with pytest.raises(UserError, match="split_seed=1, and a different cut"):
        refuse_seen(made, DataSlot())
    refuse_seen(made, DataSlot(holdout="test"))
    of_test = TrialSpec.build(data={"split_seed": 1, "holdout": "test"}, network={})
    refuse_seen(of_test, DataSlot(holdout="test"))


# --- the report


def test_tables_and_tests_are_over_draws(run):
    results = load(run)
    assert len(results.trials) == 1 + 3 * SEEDS  # without subsets of calib
    assert f"{SEEDS} splits of the calibration data" in ladder(results).text
    frame = tidy(results, ["nll"], "test")
    assert set(frame["variant"]) == {frame["variant"].iloc[0]}  # a seed is no other data set
    assert frame["split_seed"].isna().sum() == 1
    matched = over_seeds(results, "nll")
    assert list(matched.values.index) == list(range(SEEDS))
    assert matched.fixed == ("ce",)
    expected = [trials(run)["vector", seed, 60]["test/nll"] for seed in range(SEEDS)]
    assert matched.values["vector"].tolist() == expected
    assert "split of the calibration data on one network" in matched.unit


def test_the_learning_curve_has_each_method_that_is_fitted_to_calib(run):
    results = load(run)
    rows = shift_tables.curve(results)
    assert set(rows["label"]) == {"temperature", "vector", "retrain+temperature"}
    values = [trials(run)["vector", seed, 20]["test/ece"] for seed in range(SEEDS)]
    row = rows[(rows["label"] == "vector") & (rows["samples"] == 20) & (rows["metric"] == "ece")]
    assert row["mean"].item() == pytest.approx(np.mean(values))
    assert row["sd"].item() == pytest.approx(np.std(values, ddof=1))
    assert row["low"].item() == pytest.approx(np.quantile(values, 0.025))
    table = shift_tables.learning_table(results)
    assert [str(head) for head in table.heads[1:4]] == [
        f"ECE (%) ↓: {size} samples" for size in (*SUBSETS, 60)
    ]
    assert LADDER_FIGURES["learning_curve"].draw(LadderResults(results)) is not None
