"""A command that left nothing to do is not carried out again, until anything is another."""

import os
from pathlib import Path

import pytest

from tests import fake_results
from tune_calib.caches import cache_folder
from tune_calib.cli.finished import Finished, told_again
from tune_calib.results import contents
from tune_calib.spec import plugins


@pytest.fixture(autouse=True)
def at_rest(monkeypatch):
    """Nobody edits the program while it is tested."""
    monkeypatch.setattr(contents, "are_sources_current", lambda: True)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A command over a finished sweep, and how often it was carried out."""
    monkeypatch.setenv("TUNE_CALIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    out = Path("out")
    fake_results.write(out)
    times = []

    def command(given=None, **options):
        times.append(options)
        return Finished(out, ["it is done"], [given or {}])

    return told_again(command), times, out


def test_the_same_is_told_and_not_carried_out(ran, capsys):
    command, times, _ = ran
    command(seeds=3, shift=["noise"])
    assert capsys.readouterr().out == ""  # the command itself prints
    command(seeds=3, shift=["noise"])
    told = capsys.readouterr()
    assert told.out == "it is done\n"
    assert told.err == "nothing is left to do in out\n"
    assert len(times) == 1


def more_rows(out):
    (out / "trials" / "more.parquet").write_bytes(next(out.glob("trials/*")).read_bytes())


PLUGIN = """
from tune_calib.spec.recipe import Recipe
from tune_calib.spec.recipe import RECIPES

RECIPES.register(Recipe("own", "Own", "", {}, ("digits",)))
"""


def plugged(out):
    Path("lab.py").write_text(PLUGIN)
    plugins.load("lab.py")


CHANGES = {
    "rows": more_rows,
    "fewer rows": lambda out: next(out.glob("trials/*")).unlink(),
    "a damaged file": lambda out: next(out.glob("bins/*")).write_bytes(b"half"),
    "a longer question": lambda out: (out / "sweep.json").write_text("{}"),
    "a lost page": lambda out: (out / "report.html").unlink(),
    "no folder": lambda out: out.rename("elsewhere"),
    "a damaged record": lambda out: [
        path.write_text("{") for path in cache_folder().glob("finished/*/*")
    ],
    "another place": lambda out: os.chdir(".."),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_carried_out_again(change, ran):
    command, times, out = ran
    (out / "report.html").touch()
    command(seeds=3)
    CHANGES[change](out)
    command(seeds=3)
    assert len(times) == 2


def test_another_program_carries_it_out(ran, monkeypatch):
    command, times, _ = ran
    command(seeds=3)
    monkeypatch.setattr(contents, "_of_sources", lambda: "another")
    command(seeds=3)
    assert len(times) == 2


def test_another_option_or_another_file_carries_it_out(ran, tmp_path):
    command, times, _ = ran
    file = tmp_path / "sweep.yaml"
    file.write_text("a: 1")
    for options in ({"seeds": 3}, {"seeds": 4}, {"file": file}, {"seeds": 3, "metric": "ece"}):
        command(**options)
    assert len(times) == 4
    file.write_text("a: 2")
    command(file=file)
    assert len(times) == 5
    command(file=file)
    assert len(times) == 5


@pytest.mark.parametrize("option", ["dry_run", "profile", "retry"])
def test_what_does_more_than_what_is_left_is_always_carried_out(option, ran):
    command, times, _ = ran
    command(**{option: True})
    command(**{option: True})
    assert len(times) == 2


@pytest.mark.parametrize(
    "given",
    [
        {"network": {"weights": "0" * 64}},
        {"data": {"imported": {"name": "a"}}},
        {"data": {"found": {"classes": 3}}},
    ],
)
def test_what_files_say_beside_the_options_is_carried_out(given, ran):
    command, times, _ = ran
    for _ in range(2):
        command(given=given)
    assert len(times) == 2


def test_a_command_that_takes_up_a_plug_in_itself_is_carried_out(ran):
    _, times, out = ran

    def taking_up(**options):
        times.append(options)
        plugged(out)
        return Finished(out, ["done"])

    with_plugin = told_again(taking_up)
    before = plugins.in_use()
    try:
        for _ in range(2):
            plugins.use(before)
            with_plugin(seeds=1)
    finally:
        plugins.use(before)
    assert len(times) == 2


def test_a_cache_that_cannot_be_written_costs_no_more_than_time(ran, tmp_path, monkeypatch):
    command, times, _ = ran
    (tmp_path / "file").touch()
    monkeypatch.setenv("TUNE_CALIB_CACHE", str(tmp_path / "file"))
    command(seeds=3)
    command(seeds=3)
    assert len(times) == 2


def test_what_was_kept_long_ago_is_forgotten(ran):
    command, times, _ = ran
    command(seeds=1)
    (old,) = cache_folder().glob("finished/*")
    os.utime(old, (0, 0))
    command(seeds=2)
    assert old not in list(cache_folder().glob("finished/*"))
    command(seeds=2)
    assert len(times) == 2
