"""Many models are imported from one file or folder, and compared in one run."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.compare.benchmark import benchmark
from analysis.ladder.figures.bins import pooled_bins
from analysis.ladder.files import import_tables
from analysis.load import load
from tests.imports.files import features, head, outputs, write
from tests.support import here
from tune_calib.engine import imports as module
from tune_calib.engine.bank import FeatureBank
from tune_calib.engine.imports import KIND, check_files, read_record, read_records
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.results.folders import read_run_manifest
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import build_kind_comparison, expand, find_left_out
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.settings import resolve_spec
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.work import local
from tune_calib.tuning.work.jobs import JobSource
from tune_calib.tuning.work.local import JobProcess

CLASSES = {"letters/small": 2, "letters/large": 2, "digits/small": 4}


def model(classes=4, samples=40, seed=0):
    """The four arrays of a model in CalArena's layout; of two classes, only the second."""
    arrays = {}
    for number, split in enumerate(("cal", "test")):
        made = outputs(samples, classes, seed=2 * seed + number)
        probs = torch.from_numpy(made["logits"]).softmax(1).numpy()
        arrays[f"probas_{split}"] = probs if classes > 2 else probs[:, 1]
        arrays[f"labels_{split}"] = made["labels"].astype("i4")
    return arrays


MODELS = {name: model(classes, seed=n) for n, (name, classes) in enumerate(CLASSES.items())}


def hdf5(path, models=MODELS):
    arrays = {}
    for name, values in models.items():
        arrays |= {f"{name}/{key}": array for key, array in values.items()}
    return write(path, **arrays)


def take(folder, *options, models=MODELS, store="store"):
    path = hdf5(folder / "models.h5", models)
    words = ["import", "arena", "--models", path, "--store", folder / store, *options]
    return here(*words)


def by_record(store):
    return {name: record.digest for name, record in read_records("arena/*", store).items()}


# --- import


def test_a_file_becomes_an_import_for_each_model(tmp_path):
    process = take(tmp_path, "--select", "none")
    assert process.returncode == 0, process.stderr
    assert "--imported 'arena/*'" in process.stdout
    store = Store(tmp_path / "store")
    records = read_records("arena/letters/*", store)
    assert list(records) == ["arena/letters/large", "arena/letters/small"]
    record = records["arena/letters/small"]
    assert (record.classes, record.select, record.calib, record.test) == (2, 0, 40, 40)
    bank = FeatureBank(store.folder(KIND, record.digest))
    assert list(bank.evaluated()) == ["calib", "test"]
    probs = MODELS["letters/small"]["probas_test"]
    assert np.allclose(bank.test().logits.softmax(1)[:, 1], probs, atol=1e-6)


def test_calib_is_halved_unless_select_is_none(tmp_path):
    take(tmp_path)
    assert read_record("arena/digits/small", Store(tmp_path / "store")).select == 20
    take(tmp_path, "--select", "none", store="whole")
    stores = [Store(tmp_path / name) for name in ("store", "whole")]
    assert not set(by_record(stores[0]).values()) & set(by_record(stores[1]).values())


@pytest.mark.parametrize("layout", ["npz", "parquet", "npy", "NPY"])
def test_a_folder_holds_the_same_imports(tmp_path, layout):
    take(tmp_path, "--select", "none")
    folder = tmp_path / "models"
    for name, arrays in MODELS.items():
        (folder / name).mkdir(parents=True)
        if layout == "npz":
            np.savez(folder / f"{name}.npz", **arrays)
        for key, array in arrays.items():
            role, split = key.split("_")
            if layout == "parquet" and role == "probas":
                labels = arrays[f"labels_{split}"]
                write(folder / name / f"{split}.parquet", probas=array, labels=labels)
            elif layout in ("npy", "NPY"):
                with (folder / name / f"{key}.{layout}").open("wb") as file:
                    np.save(file, array)
    words = ["--models", folder, "--select", "none", "--store", tmp_path / "other"]
    assert here("import", "arena", *words).returncode == 0
    assert by_record(Store(tmp_path / "other")) == by_record(Store(tmp_path / "store"))


def test_logits_are_imported_by_their_name(tmp_path):
    arrays = {"labels_cal": MODELS["digits/small"]["labels_cal"]}
    arrays |= {"labels_test": MODELS["digits/small"]["labels_test"]}
    for seed, split in enumerate(("cal", "test")):
        arrays[f"logits_{split}"] = outputs(40, seed=seed)["logits"]
    process = take(tmp_path, "--select", "none", models={"d/m": arrays})
    assert process.returncode == 0, process.stderr
    assert read_record("arena/d/m", Store(tmp_path / "store")).outputs == "logits"


def test_a_file_without_any_usable_model_says_that_none_is_imported(tmp_path):
    arrays = {name.replace("_cal", "_val"): array for name, array in model().items()}
    process = take(tmp_path, "--select", "none", models={"d/m": arrays})
    assert process.returncode == 2
    (line,) = process.stderr.strip().splitlines()
    assert "1 model refused, first d/m: --calib is missing" in line
    assert "end in _select, _cal and _test" in line
    assert "imported as" not in process.stdout


def wrong(name, value=None):
    arrays = {key: array.copy() for key, array in MODELS["digits/small"].items()}
    if value is None:
        del arrays[name]
    else:
        arrays[name][3] = value
    return {**MODELS, "digits/small": arrays}


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (wrong("labels_test"), "digits/small: `--test`: .* has no labels"),
        (wrong("probas_cal", np.nan), "digits/small: .* row 3 contains a value that is not finite"),
        (wrong("labels_cal", 4), "digits/small: .* must be in 0 to 3, .* there is 4"),
        ({"d/a b": model()}, "'arena/d/a b' is not a valid name"),
    ],
)
def test_a_wrong_model_is_refused_in_one_line_and_the_others_are_kept(tmp_path, models, message):
    process = take(tmp_path, "--select", "none", models=models)
    assert process.returncode == 2
    (line,) = process.stderr.strip().splitlines()
    pattern = message.replace("`--test`", "--test")
    assert pd.Series([line]).str.contains(pattern).all(), line
    names = read_records("*", Store(tmp_path / "store")) if len(models) > 1 else {}
    assert len(names) == len(models) - 1


@pytest.mark.parametrize("damage", ["cut", "no model", "no file"])
def test_a_wrong_file_is_refused_in_one_line(tmp_path, refusal, damage):
    path = tmp_path / "models.h5"
    if damage != "no file":
        hdf5(path, MODELS if damage != "no model" else {"a/b": {"numbers": np.ones(3)}})
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:3000])
    words = ["--models", path, "--select", "none", "--store", tmp_path / "store"]
    message = refusal("import", "arena", *words)
    texts = {"cut": "cannot be read", "no model": "has no model", "no file": "does not exist"}
    assert texts[damage] in message


def test_a_killed_import_goes_on(tmp_path, monkeypatch):
    write_import, count = module.write_import, []

    def killed(*arguments, **options):
        if len(count) == 2:
            raise KeyboardInterrupt
        count.append(1)
        write_import(*arguments, **options)

    monkeypatch.setattr(module, "write_import", killed)
    assert take(tmp_path, "--select", "none").returncode != 0
    store = Store(tmp_path / "store")
    times = {path: path.stat().st_mtime_ns for path in (store.root / KIND).glob("*/*")}
    monkeypatch.undo()
    assert take(tmp_path, "--select", "none").returncode == 0
    assert len(by_record(store)) == 3
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


# --- compare


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    """A finished comparison of three methods on all imports."""
    folder = tmp_path_factory.mktemp("arena")
    assert take(folder, "--select", "none").returncode == 0
    words = ["compare", "ce", "temperature", "histogram", "--imported", "arena/*"]
    words += ["--store", folder / "store", "--out", folder / "out"]
    run = here(*words)
    assert run.returncode == 0, run.stderr
    return folder, words, run


def test_one_run_compares_methods_on_all_imports(arena):
    folder, _, run = arena
    assert "one trial after the other in this process" in run.stderr
    rows = load(folder / "out").trials
    assert len(rows) == 9
    assert set(rows["status"]) == {"done"}
    # The scores of the base are those of the given probabilities.
    result = benchmark([folder / "out"])
    arrays = MODELS["digits/small"]
    rows = np.arange(40), arrays["labels_test"]
    nll = -np.log(np.maximum(arrays["probas_test"][rows].astype(float), 1e-12)).mean()
    scores = result.values["nll"].xs("arena/digits", axis="columns", level="dataset")
    assert scores.loc["ce"].item() == pytest.approx(nll, abs=1e-6)
    assert "3 experiments on 2 data sets" in run.stdout
    assert (folder / "out/tables/experiments.csv").exists()


@pytest.mark.slow
def test_intervals_need_no_select_and_are_shown_for_each_import(arena, tmp_path):
    folder = arena[0]
    words = ["compare", "ce", "temperature", "--imported", "arena/letters/*", "--bootstrap", 100]
    run = here(*words, "--store", folder / "store", "--out", tmp_path / "out")
    assert "4 of 4 trials ended (4 done)" in run.stderr
    out = tmp_path / "out"
    assert read_table(out, "intervals").num_rows > 0
    report = here("report", out, "--intervals").stdout
    parts = list(load(out).by_import())
    assert {part.manifest.title for part in parts} == {"arena/letters/small", "arena/letters/large"}
    for part in parts:
        assert f"{part.manifest.title}. " in report
        key = part.manifest.title.replace("/", "-")
        assert "[" in (out / f"tables/{key}.md").read_text()
        assert (out / f"figures/reliability-{key}.png").exists()
        # Its bins are of one network, not pooled over the models of the data set.
        samples = len(MODELS[part.manifest.title.removeprefix("arena/")]["labels_test"])
        assert [pooled_bins(part, rung)["count"].sum() for rung in part.labels] == [samples] * 2


def test_an_import_that_lacks_a_method_has_a_table_with_the_others(arena):
    run = load(arena[0] / "out")
    lacking = next(iter(run.manifest.imports))
    planned = [plan for plan in run.manifest.planned if (plan.imported, plan.rung) != (lacking, 1)]
    run = replace(run, manifest=run.manifest.model_copy(update={"planned": planned}))
    first, *others = import_tables(run)
    for table, is_absent in ((first, True), *((table, False) for table in others)):
        cells = {record["method"].text: record["NLL (nats) ↓"] for record in table.records}
        assert len(cells) == 3
        values = [cell.value for method, cell in cells.items() if method.startswith("temperature")]
        assert (values == [None]) == is_absent
        assert cells["ce"].value is not None


@pytest.mark.slow
def test_a_killed_comparison_goes_on(arena):
    folder, words, _ = arena
    files = sorted((folder / "out/trials").glob("*.parquet"))
    times = {path: path.stat().st_mtime_ns for path in files}
    files[0].unlink()
    run = load(folder / "out")
    assert run.counts() == {"done": 6, "missing": 3}
    lost = benchmark([folder / "out"])
    assert lost.is_run.shape == (3, 3)  # missing trials are known by their import
    assert any("INCOMPLETE" in note for note in lost.notes)
    again = here(*words)
    assert again.returncode == 0, again.stderr
    assert "3 of 9 trials" in again.stderr
    assert [path for path in files if path.stat().st_mtime_ns == times[path]] == files[1:]
    assert "nothing is left to do" in here(*words).stderr


@pytest.fixture
def processes(monkeypatch):
    """Two processes, as for large imports."""
    monkeypatch.setattr(local, "count_processes", lambda source: 2)


@pytest.mark.slow  # starts two processes
def test_rows_do_not_depend_on_the_number_of_processes(arena, processes, tmp_path):
    folder, words, _ = arena
    run = here(*words[:-1], tmp_path / "out")
    assert "9 of 9 trials ended (9 done)" in run.stderr, run.stderr
    tables = []
    for out in (folder / "out", tmp_path / "out"):
        rows = load(out).trials.sort_values("spec_hash", ignore_index=True)
        tables.append(rows.drop(columns=["own_s", "wall_s", "peak_memory_bytes", "actor_resets"]))
    is_of_run = tables[0].columns.isin(["sweep", "run"])
    pd.testing.assert_frame_equal(*(table.loc[:, ~is_of_run] for table in tables))


@pytest.mark.slow
def test_a_killed_process_ends_only_its_job(arena, processes, monkeypatch, tmp_path):
    words = arena[1]
    begin, killed = JobProcess.begin, []

    def kill_first(process, *job):
        if not killed:
            process._process.kill()
            killed.append(process._process.wait())
        begin(process, *job)

    monkeypatch.setattr(JobProcess, "begin", kill_first)
    run = here(*words[:-1], tmp_path / "out")
    assert "9 of 9 trials ended (3 crashed, 6 done)" in run.stderr, run.stderr
    assert "its process ended with code -9; is there enough memory?" in run.stderr
    assert "3 of 9 trials" in here(*words[:-1], tmp_path / "out").stderr


@pytest.mark.slow  # starts two processes
def test_processes_end_with_their_driver():
    processes = [JobProcess(), JobProcess()]
    for process in processes:
        process.connection.close()
    assert [process._process.wait(timeout=60) for process in processes] == [0, 0]


@pytest.mark.parametrize(
    ("samples", "classes", "gigabytes", "expected"),
    [(100, 10, 8, 0), (10_000, 1000, 8, 2), (10_000, 1000, 3, 1), (10**10, 1000, 8, 1)],
)
def test_large_imports_have_processes_within_the_memory(
    monkeypatch, samples, classes, gigabytes, expected
):
    monkeypatch.setattr(local, "count_cores", lambda: 2)
    monkeypatch.setattr(local, "memory_size", lambda: gigabytes * 10**9)
    record = SimpleNamespace(calib=samples, test=samples, classes=classes)
    data = SimpleNamespace(import_record=record)
    trial = SimpleNamespace(spec=SimpleNamespace(data=data))
    job = SimpleNamespace(first=trial, trials=[trial] * 10)
    source = JobSource("", [], Provenance("out", "store", git_revision=None))
    source.ready.extend([job, job])
    assert local.count_processes(source) == expected


@pytest.mark.parametrize(("gpus", "expected"), [(0.0, [2]), (1.0, [])])
def test_processes_of_imports_do_not_share_a_gpu(processes, monkeypatch, gpus, expected):
    counts = []
    monkeypatch.setattr(
        local.LocalExecutor, "_run_in_processes", lambda self, source, count: counts.append(count)
    )
    executor = local.LocalExecutor(Provenance("out", "store", gpus=gpus, git_revision=None))
    executor.run(JobSource("", [], executor.provenance))
    assert counts == expected


@pytest.mark.slow  # imports twice
def test_a_larger_match_extends_the_run(arena, tmp_path):
    folder, words, _ = arena
    again = [*words[:-1], tmp_path / "out"]
    assert here(*again).returncode == 0
    path = hdf5(tmp_path / "more.h5", {"more/m": model(seed=9)})
    more = ["--models", path, "--select", "none", "--store", folder / "store"]
    assert here("import", "arena", *more).returncode == 0
    assert here(*again).returncode == 0
    names = read_run_manifest(tmp_path / "out").imports.values()
    assert sorted(names) == sorted([*(f"arena/{name}" for name in MODELS), "arena/more/m"])
    assert read_table(tmp_path / "out", "trials").num_rows == 12


def test_statistics_keep_the_imports_apart(arena, refusal):
    folder = arena[0]
    ranks = here("analyze", "ranks", folder / "out", "--metric", "nll", "--json")
    (first, *_) = json.loads(ranks.stdout)
    assert len(first["values"]) >= 3
    assert "several data sets" in refusal("analyze", "diff", folder / "out", folder / "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "ce", "temperature", "--imported", "x/*"], "no import in .* matches 'x/\\*'"),
        (["search", "temperature", "--imported", "arena/*"], "a search takes one"),
        (["ablate", "two_stage", "--imported", "arena/*"], "only a comparison takes"),
        (["compare", "temperature", "--imported", "arena/*"], "name another one as well"),
        (["search", "temperature", "--imported", "arena/digits/small"], "has no select"),
        (
            ["compare", "ce", "--imported", "arena/digits/small", "--split-seeds", "2"],
            "split_seed needs an import with",
        ),
    ],
)
def test_what_does_not_fit_is_refused(arena, tmp_path, refusal, words, message):
    out = ["--store", arena[0] / "store", "--out", tmp_path / "out"]
    assert pd.Series([refusal(*words, *out)]).str.contains(message).all()


def test_methods_are_left_out_by_their_classes():
    records = {}
    for classes in (2, 100, 101):
        record = {"digest": f"{classes:016}", "classes": classes, "width": 0, "is_cut": False}
        counts = {"train": 0, "select": 0, "calib": 9, "test": 9}
        records[f"c{classes}"] = {**record, **counts, "outputs": "probs"}
    request = ResolvedRequest({"data": {"imported": "c*"}}, imports=records)
    ladder = build_kind_comparison("posthoc")
    methods = {classes: set() for classes in (2, 100, 101)}
    for trial in expand(ladder, request):
        methods[trial.spec.data.info.classes].add(trial.label)
    assert methods[2] - methods[100] == {"beta"}
    assert methods[100] - methods[101] == {"dirichlet", "matrix", "sms"}
    reasons = {
        reason: [r.label for r in rungs] for reason, rungs in find_left_out(ladder, request).items()
    }
    assert reasons["they do not take 100, 101 classes"] == ["beta"]
    assert len(reasons["a matrix of parameters is too large for 101 classes"]) == 3


def test_a_head_needs_select(tmp_path):
    files = {"head": [str(write(tmp_path / "head.npz", **head()))], "select": ("none",)}
    for seed, name in enumerate(("train", "calib", "test")):
        files[name] = [str(write(tmp_path / f"{name}.npz", **features(40, seed=seed)))]
    slot = {"dataset": "imported", "imported": check_files(**files).record.model_dump()}
    network = {"backbone": "imported", "epochs": 0}
    with pytest.raises(UserError, match="the import has no select"):
        resolve_spec({"data": slot, "network": network, "head": {"method": "retrain"}})


# --- the whole benchmark


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute on an idle machine
def test_a_file_in_the_layout_of_calarena_is_compared_by_all_methods(tmp_path):
    models = {}
    for number, classes in enumerate((2, 3, 10, 100, 1000)):
        samples = max(300, classes)
        plain = model(classes, samples, seed=number)
        models[f"c{classes}/plain"] = plain
        tied = {key: array.copy() for key, array in plain.items()}
        for split in ("cal", "test"):
            probs = tied[f"probas_{split}"]
            if classes == 2:
                probs[:] = probs.round(1)  # many ties, and probabilities of 0 and 1
                continue
            probs[:30] = np.eye(classes, dtype="f4")[probs[:30].argmax(1)]
            probs[30:60] = 1 / classes
        if classes > 2:  # a class is missing in calibration
            tied["labels_cal"][tied["labels_cal"] == classes - 1] = 0
        models[f"c{classes}/tied"] = tied
    assert take(tmp_path, "--select", "none", models=models).returncode == 0
    words = ["compare", "--all", "posthoc", "--imported", "arena/*", "--store", tmp_path / "store"]
    run = here(*words, "--out", tmp_path / "out")
    assert run.returncode == 0, run.stderr
    trials = load(tmp_path / "out").trials
    assert set(trials["status"]) == {"done"}
    result = benchmark([tmp_path / "out"])
    counts = result.is_run.sum(axis="columns")
    assert counts["beta"] == 2
    assert set(counts[["dirichlet", "matrix", "sms"]]) == {8}
    assert set(counts.drop(["beta", "dirichlet", "matrix", "sms"])) == {10}
    for metric in ("nll", "brier"):
        values = result.values[metric]
        assert values.notna().equals(result.is_run)
        for (dataset, _, name, _), scores in values.items():
            arrays = models[f"{dataset.removeprefix('arena/')}/{name}"]
            probs = arrays["probas_test"].astype(float)
            if probs.ndim == 1:
                probs = np.stack([1 - probs, probs], 1)
            probs = np.maximum(probs, 1e-12)
            probs /= probs.sum(1, keepdims=True)
            rows = np.arange(len(probs)), arrays["labels_test"]
            wanted = -np.log(probs[rows]).mean()
            if metric == "brier":
                wanted = ((probs - np.eye(probs.shape[1])[rows[1]]) ** 2).sum(1).mean()
            assert scores["vanilla"] == pytest.approx(wanted, abs=1e-5), (dataset, name)
    assert "nothing is left to do" in here(*words, "--out", tmp_path / "out").stderr
