"""Logits of a run for other programs: arrays, data card, index, and what is refused."""

import hashlib
import shutil
import sys
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch

from tests.classifiers import run_trials, spec_of, write_run
from tests.imports.test_imports import bank_of, outputs, splits_of
from tests.support import here, rows
from tune_calib.data.datasets.digits import load
from tune_calib.data.splits import load_test
from tune_calib.engine import extra
from tune_calib.engine.imports import check_files, read_record, write_import
from tune_calib.files.documents import unseal
from tune_calib.files.store import Store
from tune_calib.library import logits as module
from tune_calib.metrics.summary import evaluate
from tune_calib.results.tables import write_results
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.workers import NetworkWorker

ROLES = ("logits", "probas", "labels", "indices")
SPLITS = ("select", "cal", "test")


@pytest.fixture(scope="module")
def sweep(trained, bank, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    write_run(out, trained, [spec_of("retrain", epochs=30, lr=0.5)])
    return out


def imported(folder, classes, select=None, **data):
    """A run on an import, which may draw its splits anew."""
    store = Store(folder / "store")
    splits = splits_of(folder, lambda n, seed: outputs(n, classes, seed))
    files = check_files(**{**splits, "select": select or splits["select"]})
    write_import("mine", files, store, replace=False)
    data = {"dataset": "imported", "imported": files.record.model_dump(), **data}
    spec = TrialSpec.build(data=data, network={"backbone": "imported", "epochs": 0})
    run_trials(NetworkWorker, [spec], store, folder)
    return folder, bank_of(store, files.record), spec


def exported(out, path, store=None):
    """The data card of an export, all of its arrays by name, and what the command printed."""
    words = ["--store", store] if store else []
    done = here("export", out, "--logits", path, *words)
    assert done.returncode == 0, done.stderr
    card = path.with_suffix(".json")
    arrays = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, node: arrays.update({name: node[()]})
                        if isinstance(node, h5py.Dataset) else None)  # fmt: skip
    return unseal(card.read_bytes(), card), arrays, done.stdout


def test_the_file_has_the_logits_whose_metrics_are_in_the_rows(sweep, tmp_path):
    card, arrays, _ = exported(sweep, tmp_path / "a.h5")
    images = torch.cat([part.labels for part in (load(None).train, load(None).test)])
    order = torch.cat([part.indices for part in (load(None).train, load(None).test)])
    classes = torch.empty_like(images).scatter_(0, order, images).numpy()
    by_hash = {row["spec_hash"]: row for row in rows(sweep)}
    assert sorted(by_hash) == sorted(model["trial"] for model in card["models"].values())
    for name, model in card["models"].items():
        for split, of_row in (("test", "test"), ("select", "select"), ("cal", None)):
            values = {role: arrays[f"{name}/{role}_{split}"] for role in ROLES}
            assert np.array_equal(classes[values["indices"]], values["labels"])
            logits = torch.from_numpy(values["logits"]).double()
            assert np.abs(logits.softmax(-1).numpy() - values["probas"]).max() < 1e-6
            digest = hashlib.sha256(b"".join(values[role].tobytes() for role in ROLES)).hexdigest()
            assert digest == model["digests"][split] == arrays[f"{name}/digest_{split}"].decode()
            if of_row:
                scores = evaluate(logits[None], torch.from_numpy(values["labels"]).long())
                for metric in ("nll", "accuracy"):
                    recorded = by_hash[model["trial"]][f"{of_row}/{metric}"]
                    assert float(scores[metric]) == pytest.approx(recorded, abs=1e-6)


def test_the_file_is_imported_again_unchanged(sweep, tmp_path):
    card, arrays, _ = exported(sweep, tmp_path / "a.h5")
    words = ["import", "back", "--models", tmp_path / "a.h5", "--store", tmp_path / "store"]
    done = here(*words)
    assert done.returncode == 0, done.stderr
    store = Store(tmp_path / "store")
    for name in card["models"]:
        bank = bank_of(store, read_record(f"back/{name}", store))
        for split, stored in zip(SPLITS, bank.evaluated().values(), strict=True):
            assert np.array_equal(stored.logits, arrays[f"{name}/logits_{split}"])
            assert np.array_equal(stored.labels, arrays[f"{name}/labels_{split}"])


def test_indices_follow_the_splits_that_a_trial_draws(tmp_path):
    out, bank, spec = imported(tmp_path, 4, split_seed=3)
    card, arrays, _ = exported(out, tmp_path / "x.h5", store=out / "store")
    (name,) = card["models"]
    assert name.startswith(f"imported-{spec.data.import_record.digest}/")
    held_out = np.concatenate([bank.select().logits, bank.calib().logits])
    indices = [arrays[f"{name}/indices_{split}"] for split in ("select", "cal")]
    for split, positions in zip(("select", "cal"), indices, strict=True):
        assert np.array_equal(arrays[f"{name}/logits_{split}"], held_out[positions])
    assert np.array_equal(np.sort(np.concatenate(indices)), np.arange(len(held_out)))
    assert not np.array_equal(indices[0], np.arange(len(indices[0])))


def test_what_cannot_be_exported_is_one_line_and_leaves_no_file(
    sweep, tmp_path, refusal, monkeypatch
):
    path = tmp_path / "x.h5"

    def message(*words):
        return refusal("export", sweep, *words)

    assert "must end in .h5 or .hdf5" in message("--logits", tmp_path / "x.npz")
    assert "all trials are exported" in message("--logits", path, "--best", "ece")
    text = message("--logits", path, "--store", tmp_path / "store")
    assert "is not a complete artifact" in text
    assert "give the --store of the run" in text
    search = refusal("export", "analysis/example/search", "--logits", path)
    assert "does not read test; first run: tune-calib evaluate" in search
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "h5py", None)
        assert "pip install tune-calib[hdf5]" in message("--logits", path)
    with monkeypatch.context() as patched:
        usage = SimpleNamespace(free=2**20)
        patched.setattr(module.shutil, "disk_usage", lambda path: usage)
        assert "No space left on device; choose another path" in message("--logits", path)
    assert not list(tmp_path.glob("*x*"))
    (tmp_path / "x-experiments.csv").write_text("mine")
    assert "x-experiments.csv already exists" in message("--logits", path)
    assert (tmp_path / "x-experiments.csv").read_text() == "mine"


def test_metrics_other_than_those_of_the_rows_are_refused(sweep, tmp_path, refusal):
    out = shutil.copytree(sweep, tmp_path / "out")
    trial, *others = rows(out)
    shutil.rmtree(out / "trials")
    write_results(out, "a", {"trials": [trial | {"test/accuracy": 0.5}, *others]})
    text = refusal("export", out, "--logits", tmp_path / "x.h5")
    assert "now but was 0.500000 in the trial" in text
    assert not list(tmp_path.glob("*x*"))


def test_a_copy_of_the_data_in_another_order_is_refused(sweep, tmp_path, refusal, monkeypatch):
    def load_reversed(*arguments):
        split = load_test(*arguments)
        return split.take(torch.arange(len(split)).flip(0))

    monkeypatch.setattr(extra, "load_test", load_reversed)
    text = refusal("export", sweep, "--logits", tmp_path / "x.h5", "--data-root", tmp_path)
    assert f"--data-root {tmp_path} has other data than the run" in text
