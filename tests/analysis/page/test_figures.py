"""Figures as records: each says what it tells, and one that fails costs no other."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import analysis
import tune_calib
from analysis import style
from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES, Figure
from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.page.page import draw_all
from analysis.report import write_report, write_search_report
from analysis.search.load import load_search
from tests import fake_results
from tests.drawing import figures
from tests.support import here
from tune_calib.errors import FailedFigureWarning, UserError

POINTS = [fake_results.DEFAULTS, {**fake_results.DEFAULTS, "head.lr": 0.05}]
ROOMS = {"ladder": LADDER_FIGURES, "search": SEARCH_FIGURES}
LOADED = {"ladder": lambda out: LadderResults(load(out)), "search": load_search}


def written(room, out):
    """What the report of a small folder of results prints."""
    if room == "ladder":
        fake_results.write(out)
        return write_report(out)
    fake_results.write_search(out, POINTS, [0.06, 0.05], importance={"head.lr": 1.0})
    return write_search_report(out)


@pytest.fixture(params=["ladder", pytest.param("search", marks=pytest.mark.slow)])
def room(request):
    return request.param


@pytest.fixture
def register(room, monkeypatch):
    """Register a further figure for one test."""
    registry = ROOMS[room]
    list(registry.values())  # loads them
    monkeypatch.setattr(registry, "_records", dict(registry._records))
    return registry.register


EXAMPLE = Path(analysis.__file__).parent / "example"
RIVALS = ("base", "variant", "variant", "variant")


@pytest.mark.slow
def test_figures_are_drawn_of_results_of_any_kind(tmp_path):
    """Not by a report, which tells of a figure that fails and goes on."""
    fake_results.write(tmp_path / "a", bad="diverged", bad_rungs=(0,))
    fake_results.write(tmp_path / "b", kinds=RIVALS, seeds=6)
    fake_results.write_search(tmp_path / "c", POINTS, [0.06, None], ["done", "crashed"], planned=4)
    style.theme()
    drawn = set()
    for room, folders in {
        "ladder": [tmp_path / "a", tmp_path / "b", EXAMPLE / "compare"],
        "search": [tmp_path / "c", EXAMPLE / "search"],
    }.items():
        for results in map(LOADED[room], folders):
            drawn |= {name for name in ROOMS[room] if ROOMS[room][name].draw(results) is not None}
            plt.close("all")
    assert {"tradeoff", "reliability", "confidence", "sparsity", "critical_difference"} <= drawn
    assert set(SEARCH_FIGURES) <= drawn


def fails(error):
    def raising(results):
        plt.figure()
        raise error

    return raising


def drawn(results):
    return plt.figure()


def unsaveable(results):
    figure, axis = plt.subplots()
    axis.set_title(r"$\frac{$")  # what mathtext does not read fails when it is saved
    return figure


MINE = UserError("this sweep\nhas no rungs")
FAILURES = {
    "user": (Figure("own", "T", "R.", fails(MINE)), "own: FAILED, this sweep has no rungs"),
    "caption": (Figure("own", "T", "R.", drawn, caption=fails(MINE)), "own: FAILED, this sweep"),
    "save": (Figure("own", "T", "R.", unsaveable), "own: FAILED, style.py line"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failing_figure_gives_one_line_and_the_others_are_drawn(case, room, tmp_path):
    figure, line = FAILURES[case]
    if room == "ladder":
        fake_results.write(tmp_path)
        results, other = LadderResults(load(tmp_path)), LADDER_FIGURES["tradeoff"]
    else:
        fake_results.write_search(tmp_path, POINTS, [0.06, 0.05])
        results, other = load_search(tmp_path), SEARCH_FIGURES["history"]
    with pytest.warns(FailedFigureWarning, match="own: FAILED"):
        gallery = draw_all([figure, other], results, tmp_path / "figures")
    assert [picture.name for picture in gallery.pictures] == [other.name]
    (told,) = gallery.remarks
    assert told.startswith(line)
    assert "\n" not in told
    assert plt.get_fignums() == []


def test_a_figure_that_fails_is_an_exit_code_until_it_is_drawn(room, register, tmp_path):
    errors = [ValueError("odd rows")]

    def draw(results):
        if errors:
            raise errors[0]

    register(Figure("own", "My figure", "Read it so.", draw, absent="nothing to draw"))
    with figures("png", names=["own"]):
        with pytest.warns(FailedFigureWarning, match="own: FAILED"):
            written(room, tmp_path)
        for _ in range(2):
            ended = here("report", tmp_path)
            assert ended.returncode == 1
            assert "1 figure failed; first: own: FAILED, test_figures.py line " in ended.stderr
            assert f"page     {tmp_path / 'report.html'}" in ended.stdout
            assert "own: FAILED" in (tmp_path / "report.html").read_text()
        with pytest.warns(FailedFigureWarning, match="own: FAILED"):
            tune_calib.open_results(tmp_path).report()
        errors.clear()
        ended = here("report", tmp_path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "own: not drawn, nothing to draw" in ended.stdout


def test_an_error_of_the_folder_ends_the_report(tmp_path):
    with pytest.raises(PermissionError):
        draw_all([Figure("own", "T", "R.", fails(PermissionError(13, "no")))], None, tmp_path)
