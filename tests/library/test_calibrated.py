"""Calibrated networks as files: loaded in a fresh process, with the numbers of their trials."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.classifiers import classifier_of, run_trials
from tests.data.archives import image_folder
from tests.data.support import scanned_slot
from tests.support import damaged, rows, small_spec
from tune_calib.data.splits import load_test
from tune_calib.engine.network import build
from tune_calib.engine.predict import TrainedNetwork
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import seal
from tune_calib.files.store import Store
from tune_calib.library.calibrated import (
    FORMAT,
    CalibratedNetwork,
    load_calibrated,
    write_calibrated,
)
from tune_calib.library.export import export
from tune_calib.spec import plugins
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.workers import NetworkWorker

FRESH = """
import json, sys
import torch
torch.set_num_threads(1)
import tune_calib
assert "torch" in sys.modules and "tune_calib.registry" not in sys.modules
from pathlib import Path
told = {}
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    network = tune_calib.load_calibrated(path)
    from tune_calib.data.splits import load_test
    from tune_calib.metrics.summary import evaluate
    from tune_calib.metrics.ties import OUTPUTS
    test = load_test(network.spec.data, None)
    logits = network.logits(test.images)
    scores = evaluate(logits.unsqueeze(0), test.labels, dtype=OUTPUTS)
    told[path.stem] = {f"test/{name}": float(score) for name, score in scores.items()}
    assert torch.equal(network(test.images), logits.softmax(-1))
assert not {"ray", "optuna"} & sys.modules.keys()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def images():
    return load_test(small_spec().data, None).images


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    """Every trial of the folder as files, by the name of its trial."""
    out, specs = folder
    files = tmp_path_factory.mktemp("files")
    for name, spec in specs.items():
        export(out, out / "store", None, str(files / name.replace(" ", "-")), spec.hash)
    return files


@pytest.mark.slow
def test_a_fresh_process_gets_the_metrics_of_each_trial_to_the_last_digit(folder, exported):
    out, specs = folder
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(exported)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == {name.replace(" ", "-") for name in specs}
    by_hash = {row["spec_hash"]: row for row in rows(out)}
    for name, spec in specs.items():
        row = by_hash[spec.hash]
        found = told[name.replace(" ", "-")]
        assert found == {key: row[key] for key in found}, name
        about = json.loads((exported / f"{name.replace(' ', '-')}.json").read_text())
        assert about["metrics"].items() >= found.items()
        assert about["trial"] == spec.hash
        assert about["images"]["size"] == 8


def test_features_and_logits_stand_where_images_do(folder, exported, bank, images):
    network = load_calibrated(exported / "network-temperature")
    test = bank.test()
    whole = network(images)
    assert torch.equal(network.from_logits(test.logits), whole)
    assert torch.allclose(network.from_features(test.features), whole, atol=1e-6)
    retrained = load_calibrated(exported / "mac_cal.safetensors")
    assert torch.equal(retrained.from_features(test.features), retrained(images))
    with pytest.raises(UserError, match="retrained its head"):
        retrained.from_logits(test.logits)
    assert whole.dtype == torch.float64
    assert torch.allclose(whole.sum(1), torch.ones(len(whole), dtype=torch.float64))


def test_arrays_of_any_precision_and_data_frames_are_logits_and_features(exported, bank):
    test = bank.test()
    for name, rows_ in (("network-temperature", test.logits), ("mac_cal", test.features)):
        network = load_calibrated(exported / name)
        call = network.from_features if name == "mac_cal" else network.from_logits
        expected = call(rows_)
        frame = pd.DataFrame(rows_.numpy())
        for given in (rows_.numpy(), rows_.double().numpy(), rows_.tolist(), frame):
            assert torch.equal(call(given), expected)
        with pytest.raises(UserError, match="has masked values"):
            call(np.ma.masked_greater(rows_.numpy(), 0))
    with pytest.raises(UserError, match="but the classes are 0, 1, 2"):
        load_calibrated(exported / "network-temperature").from_logits(
            pd.DataFrame(test.logits.numpy(), columns=range(9, -1, -1))
        )


def test_logits_that_do_not_follow_from_features_are_refused(exported, bank):
    with pytest.raises(UserError, match="need more than features"):
        load_calibrated(exported / "network-of-balcal").from_features(bank.test().features)


OWN_BACKBONE = """
from torch import nn


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""


@pytest.mark.parametrize("kind", ["head", "backbone"])
def test_a_plug_in_is_loaded_only_with_consent(kind, bank, images, tmp_path):
    before, path = plugins.in_use(), tmp_path / "own.py"
    source = Path(__file__).parents[2] / "docs" / "examples" / "plugin_head.py"
    path.write_text(source.read_text() if kind == "head" else OWN_BACKBONE)
    try:
        plugins.load(str(path))
        slots = {"network": small_spec().network.model_dump(mode="json")}
        if kind == "head":
            slots["head"] = {"method": "cosine", "epochs": 1, "augment": "none"}
        else:
            slots["network"]["backbone"] = "own.perceptron"
        spec = TrialSpec.build(**slots)
        network = CalibratedNetwork(
            spec, classifier_of(spec, bank), TrainedNetwork(*build(spec, 10), {})
        )
        used = {own.name: own.content for own in plugins.used(spec.plugins)}
        about = {
            "samples": 10, "metrics": {}, "flags": [], "trained_on": {}, "plugins": used,
            "circumstances": {},
        }  # fmt: skip
        write_calibrated(network, tmp_path / "x", about)
        expected = network(images)
        plugins.use(before)
        with pytest.raises(UserError, match=r"plug-in own .* give it: plugin='own.py'"):
            load_calibrated(tmp_path / "x")
        assert plugins.in_use() == before
        assert torch.equal(load_calibrated(tmp_path / "x", plugin=path)(images), expected)
        plugins.use(before)
        path.write_text(f"{path.read_text()}# changed\n")
        with pytest.raises(UserError, match="whose code the file lacks"):
            load_calibrated(tmp_path / "x", plugin=path)
    finally:
        plugins.use(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.numpy() / 255, "uint8, pixels from 0 to 255, got float64"),
        (lambda x: x[:, :, :7], r"\(N, 1, 8, 8\), got"),
        (lambda x: x[:0], "no image"),
        (lambda x: np.ma.masked_equal(x.numpy(), 255), "images has masked values"),
    ],
)
def test_other_images_are_one_line(change, message, exported, images):
    with pytest.raises(UserError, match=message):
        load_calibrated(exported / "network")(change(images))


def copied(exported, tmp_path, name="mac_cal"):
    for ending in (".json", ".safetensors"):
        (tmp_path / f"x{ending}").write_bytes((exported / f"{name}{ending}").read_bytes())
    return tmp_path / "x.json"


@pytest.mark.parametrize("how", ["empty", "truncated", "null", "foreign"])
@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_a_damaged_file_is_one_line(how, ending, exported, tmp_path):
    path = copied(exported, tmp_path)
    damaged(path.with_suffix(ending), how)
    with pytest.raises(DamagedFileError) as told:
        load_calibrated(path)
    assert "\n" not in str(told.value)


def test_absent_later_mixed_and_unnamed_files_are_one_line(exported, tmp_path):
    with pytest.raises(FileNotFoundError):
        load_calibrated(tmp_path / "nothing")
    with pytest.raises(UserError, match="no such user"):
        load_calibrated("~nobody-at-all/x")
    path = copied(exported, tmp_path)
    about = json.loads(path.read_text())
    assert about["format"] == FORMAT
    for key, value, told in (
        ("version", 2, "of another tune-calib"),
        ("sha256", "0" * 64, "is not the file that its JSON file describes"),
        ("plugins", {"own": "0123456789abcdef"}, "give it: plugin='own.py'"),
        ("images", {**about["images"], "mean": [0.5]}, "different sizes or constants"),
        ("spec", {**about["spec"], "posthoc": None}, "its spec does not match"),
    ):
        path.write_bytes(seal({**about, key: value}))
        with pytest.raises(UserError, match=told) as found:
            load_calibrated(path)
        assert "\n" not in str(found.value)
    copied(exported, tmp_path, "vtst")
    (tmp_path / "x.json").write_bytes(
        seal({**about, "sha256": json.loads((exported / "vtst.json").read_text())["sha256"]})
    )
    with pytest.raises(DamagedFileError, match="contains other tensors"):
        load_calibrated(path)


def test_a_loaded_network_knows_the_names_of_its_classes(tmp_path):
    root = image_folder(tmp_path / "data")
    for part in ("train", "test"):
        (root / part / "class1").rename(root / part / "zebra")
    store = Store(tmp_path / "store")
    slot = scanned_slot("imagefolder", root, store.images)
    network = {"backbone": "small_cnn", "epochs": 1, "augment": "none"}
    spec = TrialSpec.build(data=slot.model_dump(), network=network)
    run_trials(NetworkWorker, [spec], store, tmp_path / "out", data_root=str(root))
    export(tmp_path / "out", store.root, root, str(tmp_path / "x.safetensors"))
    assert load_calibrated(tmp_path / "x").classes == ("class0", "class2", "zebra")
    shutil.rmtree(root)
    export(tmp_path / "out", store.root, root, str(tmp_path / "y.safetensors"))
    assert load_calibrated(tmp_path / "y").classes == ()
