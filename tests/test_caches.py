"""What the program remembers of itself: worked out once, and never wrong for being kept."""

import json
import os

import pytest

from tune_calib import caches
from tune_calib.caches import remembered
from tune_calib.registry import Registry, told
from tune_calib.spec.methods import METHODS, MethodInfo

NAME = "what a test asks"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNE_CALIB_CACHE", str(tmp_path / "cache"))
    caches._read.cache_clear()
    yield tmp_path / "cache"
    caches._read.cache_clear()


class Work:
    def __init__(self, value=None):
        self.value, self.times = value or {"names": ["a", "b"]}, 0

    def __call__(self):
        self.times += 1
        return self.value


def kept(folder):
    (path,) = (folder / "program").iterdir()
    return path


def ask_anew(work):
    """As another process would."""
    caches._read.cache_clear()
    return remembered(NAME, work)


def test_it_is_worked_out_once_and_told_as_json_each_time(folder):
    work = Work({"pair": (1, 2), 3: None})
    assert remembered(NAME, work) == {"pair": [1, 2], "3": None} == ask_anew(work)
    assert work.times == 1


def test_what_is_worked_out_may_ask_itself(folder):
    inner = Work(["inner"])
    assert remembered(NAME, lambda: [*remembered("inner", inner), "outer"]) == ["inner", "outer"]
    assert ask_anew(Work()) == ["inner", "outer"]
    assert remembered("inner", inner) == ["inner"]
    assert inner.times == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"\n\n",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b'"a"', b'"c"'),
        lambda content: content + b" ",
        lambda content: b"\x80\xff" + content,
        lambda content: content[1:],
    ],
    ids=["empty", "lines", "half", "changed", "longer", "binary", "of other sources"],
)
def test_a_damaged_file_costs_time_only_and_is_mended(folder, damage):
    work = Work()
    remembered(NAME, work)
    path = kept(folder)
    path.write_bytes(damage(path.read_bytes()))
    assert ask_anew(work) == work.value == ask_anew(work)
    assert work.times == 2


def test_a_folder_that_cannot_be_written_costs_time_only(folder):
    folder.write_text("a file lies here")
    work = Work()
    assert remembered(NAME, work) == work.value == ask_anew(work)
    assert work.times == 2


@pytest.mark.parametrize("sources", ["others", None])
def test_what_older_sources_knew_is_neither_kept_nor_told(folder, monkeypatch, sources):
    remembered(NAME, Work(["of now"]))
    monkeypatch.setattr(caches, "SOURCES", sources)  # of a process that runs since before a change
    assert ask_anew(Work(["of then"])) == ["of then"]
    monkeypatch.undo()
    caches._read.cache_clear()
    monkeypatch.setenv("TUNE_CALIB_CACHE", str(folder))
    assert remembered(NAME, Work()) == ["of now"]


@pytest.mark.parametrize("change", ["further", "longer", "later", "below", "none"])
def test_every_change_of_a_source_is_seen(tmp_path, change):
    (tmp_path / "own").mkdir()
    source = tmp_path / "own" / "one.py"
    source.write_text("a = 1\n")
    before = list(caches._files(str(tmp_path)))
    match change:
        case "further":
            (tmp_path / "two.py").touch()
        case "longer":
            source.write_text("a = 11\n")
        case "later":
            os.utime(source, ns=(1, source.stat().st_mtime_ns + 1))
        case "below":
            (tmp_path / "own" / "more").mkdir()
            (tmp_path / "own" / "more" / "two.py").touch()
        case "none":
            (tmp_path / "own" / "__pycache__").mkdir()
            (tmp_path / "own" / "__pycache__" / "one.py").touch()
            (tmp_path / "own" / ".#one.py").symlink_to("nowhere")
            (tmp_path / "own" / "notes.md").touch()
    assert (list(caches._files(str(tmp_path))) == before) == (change == "none")


def test_all_packages_are_looked_at():
    found = [entry[0] for entry in (each for f in caches._folders() for each in caches._files(f))]
    for package in caches.PACKAGES:
        assert any(f"/{package}/" in path for path in found)


def test_records_of_others_are_told_and_never_kept(folder):
    own = told(NAME, lambda: list(METHODS))
    kept(folder)
    registry: Registry[MethodInfo] = Registry("method", "json", MethodInfo)
    registry.register(METHODS["ce"])  # outside of a plug-in
    assert registry.has_foreign
    assert told(NAME, lambda: ["another", *METHODS]) == ["another", *own]
    del registry
    caches._read.cache_clear()
    assert json.loads(kept(folder).read_text("utf-8").split("\n", 2)[2])[NAME] == own
