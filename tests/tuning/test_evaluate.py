"""A closer look at finished trials: the numbers of their classifiers, asked for at any time."""

import json
from functools import partial

import pytest
import torch

from tests.imports.test_imports import request_for, splits_of
from tests.support import CPU, QUICK, drive, here, rows, run_of, sample
from tests.tuning.ray.test_shared_outputs import HEAD, planned, run
from tune_calib.data.corruptions.kinds import corrupted
from tune_calib.data.shift import find_sets, foreign_set
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.classifier import ensure_classifier
from tune_calib.engine.extra import ExtraEvaluation, network_behind
from tune_calib.engine.imports import check_files, write_import
from tune_calib.engine.predict import predict
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.metrics.ood import detection
from tune_calib.metrics.summary import evaluate
from tune_calib.metrics.ties import OUTPUTS
from tune_calib.results.tables import read_table
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.metrics import CORRUPTION_METRICS, OOD_METRICS
from tune_calib.spec.settings import resolve_spec
from tune_calib.spec.slots.data import DataSlot
from tune_calib.tuning.work.jobs import find_extra_jobs
from tune_calib.tuning.work.workers import ExtraWorker

TRIALS = planned(
    {},
    {"posthoc": {"method": "temperature"}},
    {"head": HEAD},
    {"head": {**HEAD, "augment": "standard", "views": 2}, "posthoc": {"method": "temperature"}},
    {"head": {**HEAD, "bn_mode": "train", "augment": "standard", "views": 2}},
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder of finished trials, and the store behind it."""
    folder = tmp_path_factory.mktemp("finished")
    store = Store(folder / "store")
    run(folder / "out", TRIALS, store)
    return folder / "out", store


def again(trial, store):
    """Return a function from test images to calibrated logits, and the test split."""
    spec = trial.spec
    development = partial(load_development, spec.data, None)
    trained = network_behind(spec, store, development, CPU)
    classifier = ensure_classifier(spec, store, development, CPU)
    info = spec.data.info.of_test()

    def calibrated(images):
        return classifier(*predict(trained.method, trained.network, images, info))[0]

    return calibrated, load_test(spec.data, None)


def values_on(rows, where):
    return {row["metric"]: row["value"] for row in rows if row["set"] == where}


@pytest.mark.parametrize("index", sample(range(len(TRIALS)), 2))
def test_corrupted_images_are_judged_by_the_classifier_of_the_trial(index, finished):
    _, store = finished
    trial = TRIALS[index]
    calibrated, test = again(trial, store)
    looked = ExtraEvaluation(trial.spec, store, None, CPU).rows_on("generated/contrast", trial.spec)
    assert len(looked) == 5 * len(CORRUPTION_METRICS)
    for severity in (1, 4):
        images = corrupted(test.images, test.indices, "contrast", severity)
        wanted = evaluate(calibrated(images), test.labels, dtype=OUTPUTS)
        values = values_on(looked, f"generated/contrast/{severity}")
        assert values == pytest.approx({m: float(wanted[m]) for m in CORRUPTION_METRICS}, abs=1e-5)


@pytest.mark.parametrize("index", sample(range(len(TRIALS)), 3))
def test_foreign_images_are_scored_by_probability_and_entropy(index, finished):
    _, store = finished
    trial = TRIALS[index]
    calibrated, test = again(trial, store)
    looked = ExtraEvaluation(trial.spec, store, None, CPU).rows_on("ood/noise", trial.spec)
    values = values_on(looked, "ood/noise")
    assert set(values) == set(OOD_METRICS)
    (part,) = foreign_set("noise", DataSlot(), None, None, lambda: test).parts()
    noise = torch.cat(list(part.chunks(100, CPU)))
    # Scores and ties are tested elsewhere: these are of the right classifier and images.
    wanted = detection(*(calibrated(images) for images in (test.images, noise)))
    assert values == pytest.approx(wanted, abs=1e-4)


def carry_out(jobs, out, store):
    for job in jobs:
        actor = ExtraWorker({"job": job.config(), "run": run_of(out, store)})
        drive(actor)


@pytest.mark.slow
def test_only_missing_extra_evaluations_are_planned(finished, tmp_path):
    _, store = finished
    run(tmp_path, TRIALS, store)
    sets = ["ood/noise"]
    jobs = find_extra_jobs(sets, 100, TRIALS[:3], tmp_path)
    # The three share the features of one network.
    assert [(job.extra["shift"], len(job.trials)) for job in jobs] == [("ood/noise", 3), (None, 3)]
    carry_out(jobs, tmp_path, store)
    assert find_extra_jobs(sets, 100, TRIALS[:3], tmp_path) == []
    more = find_extra_jobs([*sets, "generated/fog"], 100, TRIALS, tmp_path)
    names = [sorted(trial.rung for trial in job.trials) for job in more]
    planned = [(job.extra["shift"], rungs) for job, rungs in zip(more, names, strict=True)]
    assert sorted(planned, key=str) == sorted(
        [
            ("ood/noise", [3]), ("ood/noise", [4]), ("generated/fog", [0, 1, 2, 3]),
            ("generated/fog", [4]), (None, [3]), (None, [4]),
        ],
        key=str,
    )  # fmt: skip
    other = find_extra_jobs([], 200, TRIALS[:3], tmp_path)
    assert [(job.extra["shift"], job.extra["resamples"], len(job.trials)) for job in other] == [
        (None, 200, 3)
    ]
    intervals = read_table(tmp_path, "intervals").to_pylist()
    assert {row["resamples"] for row in intervals} == {100}
    ece = [row for row in intervals if row["metric"] == "accuracy"]
    assert len(ece) == 3
    assert all(row["lower"] <= row["upper"] and row["se"] > 0 for row in ece)


def test_extra_rows_need_the_classifier_of_the_trial(finished, monkeypatch):
    _, store = finished
    trial = TRIALS[0]
    evaluation = ExtraEvaluation(trial.spec, store, None, CPU)
    (row,) = [row for row in rows(finished[0]) if row["spec_hash"] == trial.spec.hash]
    told = {name: row[name] for name in ("test/accuracy", "test/ece")}
    evaluation.refuse_other(trial.spec, told)
    with pytest.raises(UserError, match="in the trial; set `store`"):
        evaluation.refuse_other(trial.spec, {**told, "test/ece": told["test/ece"] + 0.01})
    # In reduced precision, a share of the predictions may differ.
    monkeypatch.setattr("tune_calib.engine.extra._FLIPPED_REDUCED", 0.02)
    network = trial.spec.network.model_copy(update={"precision": "bf16"})
    reduced = trial.spec.model_copy(update={"network": network})
    evaluation.refuse_other(reduced, {**told, "test/ece": told["test/ece"] + 0.01})
    with pytest.raises(UserError, match="in the trial; set `store`"):
        evaluation.refuse_other(reduced, {**told, "test/ece": told["test/ece"] + 0.03})


def test_a_diverged_classifier_has_rows_without_numbers(finished, monkeypatch):
    _, store = finished
    evaluation = ExtraEvaluation(TRIALS[0].spec, store, None, CPU)
    classes = DATASETS["digits"].classes
    nothing = lambda spec, split: torch.full((len(split.labels), classes), torch.nan)  # noqa: E731
    monkeypatch.setattr(evaluation, "calibrated", nothing)
    for name in ("ood/noise", "generated/contrast"):
        values = [row["value"] for row in evaluation.rows_on(name, TRIALS[0].spec)]
        assert values
        assert all(value != value for value in values)
    assert evaluation.intervals(TRIALS[0].spec, 100) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shift", "svhn"], "svhn is not embedded"),
        (["--shift", "corruption"], "--shift 'corruption' is unknown; did you mean 'corruptions'?"),
        (["--bootstrap", "5"], "--bootstrap must be 0 or at least 100"),
    ],
)
def test_impossible_extra_evaluations_are_refused_before_anything_starts(
    words, message, refusal, tmp_path
):
    out = tmp_path / "out"
    assert message in refusal("compare", "ce", "--out", out, *words)
    assert not out.exists()


@pytest.mark.parametrize("posthoc", [{}, {"posthoc": {"method": "temperature"}}])
def test_imported_logits_have_intervals_and_no_images(posthoc, tmp_path):
    store = Store(tmp_path / "store")
    write_import("mine", check_files(**splits_of(tmp_path)), store, replace=False)
    spec = resolve_spec({**request_for("mine", store).overrides, **posthoc})
    found = ExtraEvaluation(spec, store, None, CPU).intervals(spec, 100)
    (accuracy,) = [row for row in found if row["metric"] == "accuracy"]
    assert 0 <= accuracy["lower"] < accuracy["upper"] <= 1
    with pytest.raises(UserError, match="no images that could be shifted"):
        find_sets(("noise",), spec.data, None)
    assert find_sets((), spec.data, None) == []


@pytest.mark.slow
def test_extra_evaluations_can_be_added_later_and_resume_after_a_kill(tmp_path):
    out = tmp_path / "out"
    words = ["compare", "ce", "retrain+temperature", *QUICK, "--out", out]
    assert here(*words, "--shift", "noise").returncode == 0
    before = json.loads((out / "sweep.json").read_text())
    trials = {path: path.stat().st_mtime_ns for path in out.glob("trials/*")}
    (noise,) = out.glob("shifts/*")
    first = noise.read_bytes()
    done = here(*words, "--shift", "generated:fog", "--shift", "noise", "--bootstrap", 100)
    assert done.returncode == 0, done.stderr
    after = json.loads((out / "sweep.json").read_text())
    assert after["sweep"] == before["sweep"]
    assert after["planned"] == before["planned"]
    assert {path: path.stat().st_mtime_ns for path in out.glob("trials/*")} == trials
    found = read_table(out, "shifts").to_pandas()
    assert set(found["set"]) == {"ood/noise", *(f"generated/fog/{k}" for k in range(1, 6))}
    assert found.groupby("spec_hash").size().tolist() == [38, 38]
    # As if killed between its files: what is there stays, what is not is made again, the same.
    noise.unlink()
    fog = {path: path.stat().st_mtime_ns for path in out.glob("shifts/*")}
    assert here(*words, "--shift", "noise", "--shift", "generated:fog").returncode == 0
    assert noise.read_bytes() == first
    assert {path: path.stat().st_mtime_ns for path in fog} == fog


def draws_of(out, **wanted):
    rows = read_table(out, "shifts").to_pylist()
    return {
        r["draws"] and len(r["draws"]) for r in rows if all(r[k] in v for k, v in wanted.items())
    }


def test_an_evaluation_without_draws_is_repeated_once(finished, tmp_path):
    _, store = finished
    run(tmp_path, TRIALS, store)
    sets = ["ood/noise", "generated/fog"]
    carry_out(find_extra_jobs(sets, 0, TRIALS[:2], tmp_path), tmp_path, store)
    assert draws_of(tmp_path) == {None}
    before = {path.name for path in tmp_path.glob("shifts/*")}
    rows = rows_of_shifts(tmp_path)
    jobs = [job for job in find_extra_jobs(sets, 100, TRIALS[:2], tmp_path) if job.extra["shift"]]
    assert sorted(job.extra["shift"] for job in jobs) == sorted(sets)
    carry_out(jobs, tmp_path, store)
    # The same file, which is whole at any time, and the same values.
    assert {path.name for path in tmp_path.glob("shifts/*")} == before
    assert rows_of_shifts(tmp_path) == rows
    kept = ("auroc", "fpr95", "auroc_entropy", "fpr95_entropy")
    assert draws_of(tmp_path, set={"ood/noise"}, metric=kept) == {100}
    assert draws_of(tmp_path, set={"generated/fog/2"}, metric=("accuracy", "ece")) == {100}
    assert draws_of(tmp_path, metric=("nll", "aupr_in")) == {None}
    for draws in (100, 0):
        assert not any(
            look.extra["shift"] for look in find_extra_jobs(sets, draws, TRIALS[:2], tmp_path)
        )
    more = find_extra_jobs(sets, 200, TRIALS[:2], tmp_path)
    assert sorted(look.extra["shift"] for look in more if look.extra["shift"]) == sorted(sets)


def rows_of_shifts(out):
    rows = read_table(out, "shifts").to_pylist()
    return {(row["spec_hash"], row["set"], row["metric"]): row["value"] for row in rows}


def test_a_corrupted_split_is_drawn_as_the_test_samples_are(finished, monkeypatch):
    _, store = finished
    spec = TRIALS[1].spec
    evaluation = ExtraEvaluation(spec, store, None, CPU)
    test = evaluation.bank.test()
    monkeypatch.setattr(ExtraEvaluation, "ensure_shifted", lambda *_: {"1": test})
    found = {r["metric"]: r["draws"] for r in evaluation.rows_on("generated/fog", spec, 100)}
    clean = {row["metric"]: row["draws"] for row in evaluation.intervals(spec, 100)}
    for metric in ("accuracy", "ece"):
        assert found[metric] == pytest.approx(clean[metric], abs=1e-12)


def test_foreign_images_are_drawn_apart_from_the_test_samples_and_by_their_set(
    finished, monkeypatch
):
    """Even if there are as many: equal draws of equal images would have an AUROC of one half."""
    _, store = finished
    spec = TRIALS[1].spec
    evaluation = ExtraEvaluation(spec, store, None, CPU)
    test = evaluation.bank.test()
    monkeypatch.setattr(ExtraEvaluation, "ensure_shifted", lambda *_: {"": test})
    monkeypatch.setattr("tune_calib.engine.extra.open_set", lambda *_, **options: None)
    found = []
    for name in ("ood/noise", "ood/svhn"):
        (auroc,) = (r for r in evaluation.rows_on(name, spec, 100) if r["metric"] == "auroc")
        assert auroc["value"] == pytest.approx(0.5)
        found.append(torch.tensor(auroc["draws"]))
    assert min(float(draws.std()) for draws in found) > 0.005
    assert not torch.equal(*found)
