"""The files of a folder of results: old ones read, further keys stay, defaults are not written."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from tests import fake_results
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import CHECKSUM, seal
from tune_calib.results.manifests import (
    ReadRecord,
    RunManifest,
    SearchEvaluated,
    SearchManifest,
    SearchOutcome,
)

EXAMPLE = Path(str(files("analysis") / "example"))
STORED = [
    (RunManifest, EXAMPLE / "ladder"),
    (RunManifest, EXAMPLE / "compare"),
    (SearchManifest, EXAMPLE / "search"),
    (SearchOutcome, EXAMPLE / "search"),
]
KINDS = [RunManifest, SearchManifest, SearchOutcome, SearchEvaluated]


@pytest.fixture
def out(tmp_path):
    """A folder with each of the files."""
    fake_results.write(tmp_path)
    fake_results.write_search(tmp_path, [fake_results.DEFAULTS], [0.07])
    looks = [ReadRecord(seeds=2, command="it")]
    SearchEvaluated(version=1, trial=0, settings={}, rule="best", reads=looks).write(tmp_path)
    return tmp_path


def content(kind, folder):
    return json.loads((folder / kind.file_name).read_text())


@pytest.mark.parametrize(("kind", "folder"), STORED)
def test_a_stored_file_is_written_again_as_it_was(kind, folder, tmp_path):
    """What it lacks is not made up, and what is no more written stays."""
    kind.read(folder).write(tmp_path)
    stored, after = content(kind, folder), content(kind, tmp_path)
    assert after == stored
    keys = [key for key in kind.model_fields if key in stored and key != CHECKSUM]
    assert list(after)[: len(keys)] == keys


@pytest.mark.parametrize("kind", KINDS)
def test_further_keys_of_a_later_version_stay(kind, out, tmp_path):
    path = out / kind.file_name
    written = kind.read(out)
    path.write_bytes(seal({**content(kind, out), "later": {"a": 1}}))
    old = kind.read(out)
    assert old.plain() == {**written.plain(), "later": {"a": 1}}
    written.over(old).write(out)
    assert content(kind, out)["later"] == {"a": 1}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (b"{", DamagedFileError, "is incomplete"),
        (b"[" * 100_000, DamagedFileError, "is incomplete"),
        (b"[]", DamagedFileError, "has no checksum"),
        (seal({"version": 1}), DamagedFileError, "was not written by tune-calib"),
        (seal({"version": 99}), UserError, "later tune-calib"),
    ],
)
def test_damaged_foreign_and_later_files_raise_different_errors(kind, text, error, message, out):
    (out / kind.file_name).write_bytes(text)
    with pytest.raises(error, match=message):
        kind.read(out)


@pytest.mark.parametrize("value", ["1", True, None, [1.5]])
def test_values_of_another_type_are_refused(value, out):
    path = out / RunManifest.file_name
    path.write_bytes(seal({**content(RunManifest, out), "network_seeds": value}))
    with pytest.raises(DamagedFileError):
        RunManifest.read(out)
