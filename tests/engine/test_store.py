import dataclasses
import json
import threading

import pytest
import torch

from tests.support import CPU, small_spec
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank, load_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.tensors import read_tensors, write_tensors
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import CHECKSUM, seal
from tune_calib.files.store import VERSION, Store, artifact_manifest, read_or_remove


def test_an_artifact_comes_back_with_its_manifest(tmp_path):
    write_tensors(tmp_path / "a", {"x": torch.arange(3)}, {"epoch": 7})
    tensors, about = read_tensors(tmp_path / "a")
    assert torch.equal(tensors["x"], torch.arange(3))
    assert about["epoch"] == 7


@pytest.mark.parametrize("name", ["tensors.safetensors", "manifest.json"])
def test_a_damaged_artifact_raises_and_is_removed(tmp_path, name):
    write_tensors(tmp_path / "a", {"x": torch.arange(3)}, {})
    path = tmp_path / "a" / name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DamagedFileError):
        artifact_manifest(tmp_path / "a")
    assert read_or_remove(tmp_path / "a", artifact_manifest) is None
    assert not (tmp_path / "a").exists()


def swap(one, two):
    away = one.with_name("away")
    one.rename(away)
    two.rename(one)
    away.rename(two)


def test_artifacts_that_were_swapped_are_refused_and_not_removed(tmp_path):
    one, two = (tmp_path / kind / name for kind, name in (("networks", "1"), ("networks", "2")))
    for number, folder in enumerate((one, two)):
        write_tensors(folder, {"x": torch.full((3,), number)}, {})
    swap(one, two)
    with pytest.raises(UserError, match="networks/1 contains networks/2, which was moved"):
        read_tensors(one)
    with pytest.raises(UserError):
        read_or_remove(two, artifact_manifest)
    swap(one, two)
    assert torch.equal(read_tensors(two)[0]["x"], torch.ones(3))


@pytest.mark.parametrize("version", [None, VERSION + 1])
def test_an_artifact_of_another_version_is_refused_and_not_removed(version, tmp_path):
    folder = tmp_path / "a"
    write_tensors(folder, {"x": torch.arange(3)}, {})
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["version"] == VERSION
    (folder / "manifest.json").write_bytes(seal({**manifest, "version": version}))
    with pytest.raises(UserError, match=f"has format {version}, but .* reads format {VERSION}"):
        read_or_remove(folder, artifact_manifest)
    assert (folder / "tensors.safetensors").exists()


def test_an_edited_manifest_is_damaged_but_not_one_without_checksum(tmp_path):
    write_tensors(tmp_path / "a", {"x": torch.arange(3)}, {"accuracy": 0.5})
    path = tmp_path / "a" / "manifest.json"
    manifest = {**json.loads(path.read_text()), "accuracy": 0.9}
    path.write_text(json.dumps(manifest))
    with pytest.raises(DamagedFileError, match="its checksum differs"):
        artifact_manifest(tmp_path / "a")
    del manifest[CHECKSUM]
    path.write_text(json.dumps(manifest))
    # It may be whole and the work of hours.
    with pytest.raises(UserError, match="has no checksum"):
        read_or_remove(tmp_path / "a", artifact_manifest)
    assert path.exists()


def test_an_unwritable_path_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        write_tensors(tmp_path / "file" / "a", {"x": torch.arange(3)}, {})


def test_concurrent_processes_train_a_network_once(tmp_path):
    spec = small_spec()
    store = Store(tmp_path)
    epochs = []

    def need():
        run = NetworkTraining(spec, store, load_development(spec.data, None), CPU)
        while run.step() is not None:
            epochs.append(1)
        run.close()

    threads = [threading.Thread(target=need) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(epochs) == spec.network.epochs


def test_a_damaged_bank_is_rebuilt_to_the_same_bits(trained, bank):
    spec = small_spec(method="retrain")
    before = bank.select().features.clone()
    damaged = bank.folder / "select.arrow"
    damaged.write_bytes(damaged.read_bytes()[:-1])

    def splits():
        return load_development(spec.data, None), load_test(spec.data, None)

    rebuilt = ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), trained, splits, CPU)
    assert torch.equal(rebuilt.select().features, before)


def test_the_bank_holds_the_logits_of_the_network(trained, bank):
    spec = small_spec()
    network = load_network(spec, trained, CPU).network
    split = bank.test()
    logits = split.features @ network.head.weight.T + network.head.bias
    assert torch.allclose(logits, split.logits, atol=1e-5)
    assert torch.equal(split.labels, load_test(spec.data, None).labels)


def test_a_network_of_another_copy_of_the_data_is_refused(trained):
    spec = small_spec()
    splits = load_development(spec.data, None)
    other = dataclasses.replace(splits, train=splits.train.take(torch.arange(499, -1, -1)))
    with pytest.raises(UserError, match="another copy of digits"):
        NetworkTraining(spec, trained, other, CPU)
    NetworkTraining(spec, trained, splits, CPU).close()


def test_an_unreadable_artifact_is_refused_and_not_removed(tmp_path, monkeypatch):
    write_tensors(tmp_path / "a", {"x": torch.arange(3)}, {})

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("tune_calib.files.store.checksum_of", refuse)
    with pytest.raises(PermissionError):
        read_or_remove(tmp_path / "a", artifact_manifest)
    monkeypatch.undo()
    artifact_manifest(tmp_path / "a")
