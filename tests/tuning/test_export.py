"""From a folder of results to a calibrated network: which trial is meant, and what is refused."""

import json
import shutil
from functools import partial
from pathlib import Path

import onnxruntime
import pytest
import torch

from tests.classifiers import run_trials, spec_of, write_run
from tests.imports.test_imports import bank_of, with_features
from tests.support import here, rows, sample
from tune_calib.engine.classifier import KIND
from tune_calib.engine.imports import check_files, write_import
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.library.calibrated import load_calibrated
from tune_calib.library.export import _chosen, export
from tune_calib.library.onnx_file import CLOSE
from tune_calib.metrics.summary import evaluate
from tune_calib.results.manifests import RungRecord, RunManifest, SearchOutcome
from tune_calib.results.tables import write_results
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker

# Trained until it is better than chance.
HEAD = partial(spec_of, "retrain", epochs=30, lr=0.5)
EXAMPLE = Path(__file__).parents[2] / "analysis" / "example"


@pytest.fixture(scope="module")
def sweep(trained, bank, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    write_run(out, trained, [HEAD(seed=seed) for seed in range(2)])
    return out


@pytest.fixture
def run_copy(sweep, tmp_path):
    return shutil.copytree(sweep, tmp_path / "out")


def description_of(file):
    return json.loads(file.with_suffix(".json").read_text())


@pytest.mark.parametrize("metric", ["ece", "select/nll", "accuracy"])
def test_the_best_is_the_best_on_select(metric, sweep, tmp_path):
    done = here("export", sweep, tmp_path / "best.safetensors", "--best", metric)
    assert done.returncode == 0, done.stderr
    key = f"select/{metric.removeprefix('select/')}"
    # The network is at chance, and has the smallest ECE of all.
    found = [row for row in rows(sweep) if "chance" not in (row["flags"] or "")]
    assert len(found) == 2
    best = (max if metric == "accuracy" else min)(found, key=lambda row: row[key])
    description = description_of(tmp_path / "best.json")
    assert description["metrics"][key] == best[key]
    assert description["metrics"]["test/ece"] == next(
        row["test/ece"] for row in found if row["spec_hash"] == description["trial"]
    )
    values = [100 * description["metrics"][key] for key in ("test/ece", "base/test/ece")]
    expected = "ECE       {:.2f} % (before calibration {:.2f} %)".format(*values)
    assert expected in done.stdout
    assert "on test:" in done.stdout


@pytest.mark.slow
def test_export_selects_a_trial_by_the_start_of_its_hash_and_adds_onnx(sweep, tmp_path):
    name = rows(sweep)[0]["spec_hash"]
    done = here("export", sweep, tmp_path / "x.json", "--trial", name[:8], "--onnx")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", "x.onnx", "x.safetensors"}
    assert load_calibrated(tmp_path / "x").record.trial == name


def test_export_overwrites_nothing_and_refuses_folders_without_results(sweep, tmp_path, refusal):
    (tmp_path / "x.json").write_text("mine")
    assert "already exists" in refusal("export", sweep, tmp_path / "x", "--best", "ece")
    assert (tmp_path / "x.json").read_text() == "mine"
    assert "contains no sweep.json" in refusal("export", tmp_path, tmp_path / "y")
    absent = refusal("export", sweep, tmp_path / "y", "--best", "ece", "--store", tmp_path / "no")
    assert "give the --store of the run" in absent


def test_a_foreign_stored_head_and_other_numbers_are_refused_and_a_missing_one_is_retrained(
    run_copy, bank, tmp_path
):
    spec, other = HEAD(seed=0), HEAD(seed=1)
    stored = run_copy / "store" / KIND
    export(run_copy, run_copy / "store", None, str(tmp_path / "a"), spec.hash)
    shutil.rmtree(stored / spec.hash)
    shutil.copytree(stored / other.hash, stored / spec.hash)
    with pytest.raises(UserError, match="was moved or renamed"):
        export(run_copy, run_copy / "store", None, str(tmp_path / "b"), spec.hash)
    shutil.rmtree(stored / spec.hash)
    export(run_copy, run_copy / "store", None, str(tmp_path / "b"), spec.hash)
    features = bank.test().features
    first, second = (load_calibrated(tmp_path / name).from_features(features) for name in "ab")
    assert torch.equal(first, second)
    row = next(row for row in rows(run_copy) if row["spec_hash"] == spec.hash)
    assert description_of(tmp_path / "b.json")["metrics"]["test/ece"] == row["test/ece"]
    # As a row of another version of the program would be.
    changed = {**row, "select/nll": row["select/nll"] + 1e-3}
    write_results(run_copy, "heads", {"trials": [changed]})
    with pytest.raises(UserError, match=r"its NLL is .* now and was .* in its trial"):
        export(run_copy, run_copy / "store", None, str(tmp_path / "c"), spec.hash)
    assert not (tmp_path / "c.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("head", "takes"), sample([("mac_cal", "features"), (None, "logits")], 1))
def test_exports_of_imported_data_accept_what_was_imported(head, takes, tmp_path):
    store = Store(tmp_path / "store")
    files = check_files(**with_features(tmp_path))
    write_import("mine", files, store, replace=False)
    slots = {
        "data": {"dataset": "imported", "imported": files.record.model_dump()},
        "network": {"backbone": "imported", "epochs": 0},
        "posthoc": {"method": "temperature"},
    }
    if head:
        slots["head"] = {"method": head, "epochs": 2, "augment": "none"}
    spec = TrialSpec.build(**slots)
    run_trials(HeadWorker if head else NetworkWorker, [spec], store, tmp_path)
    done = here("export", tmp_path, tmp_path / "x", "--onnx")
    assert done.returncode == 0, done.stderr
    network = load_calibrated(tmp_path / "x")
    assert network.record.images is None
    test = bank_of(store, files.record).test()
    probs = getattr(network, f"from_{takes}")(getattr(test, takes))
    (row,) = rows(tmp_path)
    scores = evaluate(probs.log()[None], test.labels)
    assert float(scores["accuracy"]) == row["test/accuracy"]
    assert abs(float(scores["ece"]) - row["test/ece"]) < 1e-12
    with pytest.raises(UserError, match=f"no network for images: .* call from_{takes}"):
        network(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    session = onnxruntime.InferenceSession(str(tmp_path / "x.onnx"))
    found = torch.from_numpy(
        session.run(["probabilities"], {takes: getattr(test, takes).numpy()})[0]
    )
    assert (found - probs).abs().max() <= CLOSE


def test_the_export_of_a_search_is_its_choice(tmp_path):
    search = EXAMPLE / "search"
    row = _chosen(search, None, None)
    assert row["status"] == "done"
    if (search / "evaluation").exists():
        assert row["test/ece"] is not None
    copy = shutil.copytree(search, tmp_path / "search")
    shutil.rmtree(copy / "evaluation", ignore_errors=True)
    row = _chosen(copy, None, None)
    outcome = SearchOutcome.read(copy)
    chosen = next(
        suggestion for suggestion in outcome.suggestions if suggestion.number == outcome.chosen
    )
    assert row["spec_hash"] == chosen.specs[0]
    assert row.get("test/ece") is None
    with pytest.raises(UserError, match="selected by its own metrics"):
        _chosen(copy, None, "ece")
    text = (copy / "outcome.json").read_text()
    flipped = text.replace(f'"chosen": {outcome.chosen}', f'"chosen": {outcome.chosen ^ 1}')
    (copy / "outcome.json").write_text(flipped)
    with pytest.raises(UserError, match=r"its checksum differs; write it again: tune-calib report"):
        _chosen(copy, None, None)
    outcome.model_copy(update={"asked": outcome.asked - 1}).write(copy)
    with pytest.raises(UserError, match="is not finished; first run: tune-calib resume"):
        _chosen(copy, None, None)
    (copy / "outcome.json").unlink()
    with pytest.raises(UserError, match="no outcome yet"):
        _chosen(copy, None, None)
    (copy / "trials").rename(copy / "elsewhere")
    shutil.copy(search / "outcome.json", copy)
    write_results(copy, "a", {"trials": [{**row, "spec_hash": "another"}]})
    with pytest.raises(UserError, match="has lost the rows of its selected trial"):
        _chosen(copy, None, None)


@pytest.mark.parametrize("done", [["baseline"], ["baseline", "chosen"], []])
@pytest.mark.parametrize("asked", [["baseline", "chosen"], ["baseline"]])
def test_the_baseline_of_a_search_is_chosen_only_if_it_is_the_choice(asked, done, tmp_path):
    copy = shutil.copytree(EXAMPLE / "search", tmp_path / "search")
    searched = _chosen(copy, None, None)
    manifest = RunManifest.read(EXAMPLE / "ladder")
    rungs = [
        RungRecord(index=number, label=label, published=None, kind="variant")
        for number, label in enumerate(asked)
    ]
    (copy / "evaluation").mkdir()
    manifest.model_copy(update={"rungs": rungs, "planned": []}).write(copy / "evaluation")
    of_sweep = rows(EXAMPLE / "ladder")[0]
    table = [{**of_sweep, "rung_label": label} for label in done if label in asked]
    if table:
        write_results(copy / "evaluation", "a", {"trials": table})
    found = _chosen(copy, None, None)["rung_label"]
    assert found == (asked[-1] if asked[-1] in done else searched["rung_label"])
