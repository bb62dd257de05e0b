"""From a folder of results to a calibrated network: which trial is meant, and what is refused."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.classifiers import run_trials, spec_of
from tests.support import here, rows
from tune_calib.engine.classifier import KIND
from tune_calib.engine.store import ARTIFACT_MANIFEST, Store
from tune_calib.errors import UserError
from tune_calib.library.calibrated import load_calibrated
from tune_calib.manifests import SearchOutcome
from tune_calib.results import write_results
from tune_calib.tuning.backend.trainables import HeadTrainable, NetworkTrainable
from tune_calib.tuning.export import Wanted, _chosen, export

# Trained until it is better than chance.
HEAD = partial(spec_of, "retrain", epochs=30, lr=0.5)
EXAMPLE = Path(__file__).parents[2] / "analysis" / "example"


@pytest.fixture(scope="module")
def sweep(trained, bank, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    for kind in ("networks", "banks"):
        shutil.copytree(trained.root / kind, out / "store" / kind)
    store = Store(out / "store")
    run_trials(HeadTrainable, [HEAD(seed=s) for s in range(2)], store, out, "heads")
    networks = [spec_of(), spec_of(posthoc="temperature")]
    run_trials(NetworkTrainable, networks, store, out, "networks")
    return out


@pytest.fixture
def own(sweep, tmp_path):
    return shutil.copytree(sweep, tmp_path / "out")


def told_of(file):
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
    about = told_of(tmp_path / "best.json")
    assert about["metrics"][key] == best[key]
    assert about["metrics"]["test/ece"] == next(
        row["test/ece"] for row in found if row["spec_hash"] == about["trial"]
    )
    assert f"{100 * about['metrics']['test/ece']:.2f} % on test" in done.stdout


def test_a_trial_is_named_by_how_its_hash_begins_and_onnx_lies_beside(sweep, tmp_path):
    name = rows(sweep)[0]["spec_hash"]
    done = here("export", sweep, tmp_path / "x.json", "--trial", name[:8], "--onnx")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", "x.onnx", "x.safetensors"}
    assert load_calibrated(tmp_path / "x").about.trial == name


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "holds 4 finished trials; name one by --trial HASH"),
        (["--best", "test/ece"], "chosen on select, never on test; take --best ece"),
        (["--best", "calib/ece"], "chosen on select, never on calib"),
        (["--best", "eec"], "did you mean 'ece'"),
        (["--best", "confidence_gap"], "no value of it is the best"),
        (["--trial", "xyz"], "0 finished trials whose spec hash begins with 'xyz'"),
        (["--trial", "abc", "--best", "ece"], "give one of them"),
    ],
)
def test_what_is_not_one_trial_is_one_line(words, told, sweep, tmp_path, refusal):
    assert told in refusal("export", sweep, tmp_path / "x", *words)
    assert not list(tmp_path.iterdir())


def test_files_are_not_written_over_and_folders_without_results_are_told(sweep, tmp_path, refusal):
    (tmp_path / "x.json").write_text("mine")
    assert "is there already" in refusal("export", sweep, tmp_path / "x", "--best", "ece")
    assert (tmp_path / "x.json").read_text() == "mine"
    assert "no finished trial" in refusal("export", tmp_path, tmp_path / "y")
    absent = refusal("export", sweep, tmp_path / "y", "--best", "ece", "--store", tmp_path / "no")
    assert "name the --store of the sweep" in absent


def test_what_another_machine_kept_is_made_again_and_other_numbers_are_refused(own, tmp_path):
    spec = HEAD(seed=0)
    folder = own / "store" / KIND / spec.hash
    about = json.loads((folder / ARTIFACT_MANIFEST).read_text())
    about["select"]["select/nll"] += 1e-9
    (folder / ARTIFACT_MANIFEST).write_text(json.dumps(about))
    export(own, own / "store", None, Wanted(spec.hash), str(tmp_path / "a"))
    row = next(row for row in rows(own) if row["spec_hash"] == spec.hash)
    whole = next(row for row in rows(own, "none") if row["spec_hash"] == spec.hash)
    assert told_of(tmp_path / "a.json")["metrics"]["test/ece"] == row["test/ece"]
    other = {**whole, "select/nll": whole["select/nll"] + 1e-3}
    write_results(own, "heads", {"trials": [other]})
    with pytest.raises(UserError, match=r"select/nll is .* now and was .* in its trial"):
        export(own, own / "store", None, Wanted(spec.hash), str(tmp_path / "b"))
    assert not (tmp_path / "b.json").exists()


def test_of_a_search_it_is_the_choice(tmp_path):
    search = EXAMPLE / "search"
    row = _chosen(search, Wanted())
    assert row["status"] == "done"
    if (search / "evaluation").exists():
        assert row["test/ece"] is not None
    copy = shutil.copytree(search, tmp_path / "search")
    shutil.rmtree(copy / "evaluation", ignore_errors=True)
    row = _chosen(copy, Wanted())
    outcome = SearchOutcome.read(copy)
    chosen = next(each for each in outcome.suggestions if each.number == outcome.chosen)
    assert row["spec_hash"] == chosen.specs[0]
    assert row.get("test/ece") is None
    with pytest.raises(UserError, match="has chosen by its own metrics"):
        _chosen(copy, Wanted(best="ece"))
    (copy / "outcome.json").unlink()
    with pytest.raises(UserError, match="no outcome yet"):
        _chosen(copy, Wanted())
