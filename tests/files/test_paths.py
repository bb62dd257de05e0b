"""Remote places, with fsspec's file system in memory in the place of an object store."""

from pathlib import Path

import fsspec
import pytest
import torch

from tests.support import CPU, small_spec
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank, load_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.tensors import read_tensors, write_tensors
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.paths import cache_folder, fetch_files, parse_path
from tune_calib.files.store import Store, artifact_manifest, read_or_remove
from tune_calib.results.tables import read_table, write_results

ROW = {"schema_version": 1, "spec_hash": "a", "status": "done"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of an empty store, on a machine without copies."""
    monkeypatch.setenv("TUNE_CALIB_CACHE", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield parse_path("memory://bucket/folder/")
    memory.store.clear()


def objects():
    return {path.rpartition("/")[2] for path in fsspec.filesystem("memory").store}


def damage(name):
    for path, file in fsspec.filesystem("memory").store.items():
        if name in path:
            file.seek(0)
            file.write(b"damaged")


def test_parse_path_separates_local_paths_from_urls(tmp_path):
    assert parse_path(str(tmp_path)) == tmp_path
    assert parse_path(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert str(parse_path("s3://bucket/a/") / "b") == "s3://bucket/a/b"
    assert parse_path("s3://bucket/a").parent.name == "bucket"


def test_an_unknown_protocol_is_one_line():
    with pytest.raises(UserError, match=r"cannot reach nonsense://a/b: .*nonsense"):
        parse_path("nonsense://a/b").exists()


def test_a_remote_folder_is_listed_and_matched(folder):
    for name in ("a/trials/x", "b/trials/y", "b/curves/y"):
        (folder / name).write_bytes(name.encode())
    assert [path.name for path in folder.iterdir()] == ["a", "b"]
    assert [str(match) for match in folder.glob("*/trials")] == [
        f"{folder}/a/trials",
        f"{folder}/b/trials",
    ]
    assert (folder / "b").exists()
    (folder / "b").remove()
    assert not (folder / "b").exists()
    assert (folder / "a/trials/x").read_bytes() == b"a/trials/x"


def test_remote_results_are_read_back_and_fetched_once(folder):
    write_results(folder, "one", {"trials": [ROW]})
    assert read_table(folder, "trials").num_rows == 1
    ((_, copy),) = fetch_files(folder / "trials", "*.parquet")
    changed_ns = copy.stat().st_mtime_ns
    assert read_table(folder, "trials", "one").num_rows == 1
    assert copy.stat().st_mtime_ns == changed_ns
    assert read_table(folder, "trials", "two").num_rows == 0


def test_a_damaged_remote_result_is_named(folder):
    write_results(folder, "one", {"trials": [ROW]})
    damage("trials/one.parquet")
    with pytest.raises(DamagedFileError, match=f"{folder}/trials/one.parquet"):
        read_table(folder, "trials")


def test_a_later_artifact_replaces_the_earlier_one(folder):
    for epoch in (1, 2):
        write_tensors(folder / "a", {"x": torch.full((3,), epoch)}, {"epoch": epoch})
        tensors, fields = read_tensors(folder / "a")
        assert fields["epoch"] == epoch
        assert torch.equal(tensors["x"], torch.full((3,), epoch))
        assert len(objects()) == 2


def test_an_upload_that_was_cut_off_leaves_the_artifact_before_it(folder, monkeypatch):
    write_tensors(folder / "a", {"x": torch.zeros(3)}, {"epoch": 1})
    monkeypatch.setattr(type(folder), "write_bytes", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_tensors(folder / "a", {"x": torch.ones(3)}, {"epoch": 2})
    assert artifact_manifest(folder / "a")["epoch"] == 1


@pytest.mark.parametrize("name", ["tensors.safetensors", "manifest.json"])
def test_a_damaged_remote_artifact_is_removed(folder, name):
    write_tensors(folder / "a", {"x": torch.arange(3)}, {})
    damage(name)
    assert read_or_remove(folder / "a", artifact_manifest) is None
    assert not (folder / "a").exists()


def test_a_damaged_copy_is_fetched_again(folder):
    write_tensors(folder / "a", {"x": torch.arange(3)}, {})
    read_tensors(folder / "a")
    (copy,) = (cache_folder() / "artifacts").glob("*/tensors.safetensors")
    copy.write_bytes(b"damaged")
    assert torch.equal(read_tensors(folder / "a")[0]["x"], torch.arange(3))


@pytest.mark.slow
def test_a_network_goes_on_from_its_remote_checkpoint_to_the_same_bits(folder, trained):
    spec, store = small_spec(method="retrain"), Store(folder)

    def splits():
        return load_development(spec.data, None), load_test(spec.data, None)

    run = NetworkTraining(spec, store, splits()[0], CPU)
    run.step()
    run.close()
    run = NetworkTraining(spec, store, splits()[0], CPU)
    assert len(run.history) == 1
    while run.step() is not None:
        pass
    run.close()
    assert store.holds("networks", spec.network_id)
    assert not run.checkpoint.exists()
    ours, theirs = (load_network(spec, place, CPU).network for place in (store, trained))
    for name, weight in ours.state_dict().items():
        assert torch.equal(weight, theirs.state_dict()[name])
    bank = ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), store, splits, CPU)
    local = ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), trained, splits, CPU)
    assert torch.equal(bank.test().features, local.test().features)


def test_a_tilde_is_the_home_folder_wherever_a_path_is_read(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_path("~/runs") == tmp_path / "runs"
    assert parse_path("~") == tmp_path
    assert parse_path("a~/runs") == Path("a~/runs")
    with pytest.raises(
        UserError, match=r"no such user; a folder of that name is \./~nobody-here/a"
    ):
        parse_path("~nobody-here/a")
    monkeypatch.setenv("TUNE_CALIB_CACHE", "~/cache")
    assert cache_folder() == tmp_path / "cache"
