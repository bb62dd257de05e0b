"""Figures that tell what their points are: read off the drawing, so with the same numbers."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

from analysis import style
from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES
from analysis.interactive.figure import interactive
from analysis.interactive.told import tell
from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.search.load import load_search
from tests import fake_results
from tests.support import each

POINTS = [
    {**fake_results.DEFAULTS, "head.lr": rate, "head.epochs": epochs}
    for rate, epochs in ((0.1, 2), (0.05, 3), (0.02, 4))
]


@pytest.fixture(autouse=True)
def _styled():
    style.apply()
    yield
    plt.close("all")


def read(figure):
    """The figure as the page has it."""
    figure.draw_without_rendering()
    return json.loads(json.dumps(interactive(figure), allow_nan=False))


def plotted(draw, **axes):
    figure, axis = plt.subplots()
    told = draw(axis)
    axis.set(**axes)
    return read(figure), told


def test_a_line_keeps_its_numbers_its_look_and_its_gaps():
    def draw(axis):
        axis.plot([1, 2, 3], [0.1, np.nan, 0.3], "--s", color="#0173b2", label="+ one")

    found, _ = plotted(draw, xlabel="epoch", ylabel="ECE (%)")
    (trace,) = found["data"]
    assert (trace["x"], trace["y"]) == ([1, 2, 3], [0.1, None, 0.3])
    assert (trace["mode"], trace["line"]["dash"]) == ("lines+markers", "dash")
    assert (trace["marker"]["symbol"], trace["line"]["color"]) == ("square", "rgb(1,115,178)")
    told = "<b>+ one</b><br>epoch: %{x:.4g}<br>ECE (%): %{y:.4g}<extra></extra>"
    assert trace["hovertemplate"] == told


@each("kind", ["scatter", "plot", "errorbar", "bar", "barh"])
def test_every_kind_of_point_says_what_was_told_of_it(kind):
    def draw(axis):
        x, y = [1, 2], [3, 4]
        if kind == "plot":
            (drawn,) = axis.plot(x, y, "o")
        elif kind == "errorbar":
            drawn = axis.errorbar(x, y, yerr=[1, 1], fmt="D").lines[0]
        else:
            drawn = getattr(axis, kind)(x, y)
        tell(drawn, ["vanilla <1>\nseed 0", "b"])

    found, _ = plotted(draw)
    texts = [trace.get("text") or trace.get("customdata") for trace in found["data"]]
    # Escaped, since Plotly reads some HTML.
    assert ["<b>vanilla &lt;1&gt;</b><br>seed 0", "<b>b</b>"] in texts
    assert sum(text is not None for text in texts) == 1


def test_bars_stand_where_they_were_drawn():
    upright, _ = plotted(lambda axis: axis.bar([0.0, 0.5], [1, 2], 0.5, bottom=3, align="edge"))
    lying, _ = plotted(lambda axis: axis.barh([0, 1], [5, 6]))
    (trace,) = upright["data"]
    assert (trace["x"], trace["y"], trace["base"]) == ([0.25, 0.75], [1, 2], [3, 3])
    (trace,) = lying["data"]
    assert (trace["orientation"], trace["x"], trace["y"]) == ("h", [5, 6], [0, 1])
    assert "base" not in trace


@each("inverted", [False, True])
@each("scale", ["linear", "log"])
def test_axes_keep_their_scale_their_ends_and_their_direction(scale, inverted):
    ends = (10, 1) if inverted else (1, 10)
    found, _ = plotted(lambda axis: axis.plot([1, 10], [1, 10]), yscale=scale, ylim=ends)
    axis = found["layout"]["yaxis"]
    assert axis["type"] == scale
    assert axis["range"] == ([0, 1] if scale == "log" else [1, 10])[:: -1 if inverted else 1]


def test_whole_ticks_stay_whole_and_names_stay_names():
    def draw(axis):
        axis.plot([1, 2, 3], [0, 1, 2])
        style.whole_ticks(axis.xaxis)
        axis.set_yticks([0, 1, 2], ["a", "b\nc", "d"])

    layout = plotted(draw)[0]["layout"]
    assert layout["xaxis"]["dtick"] == int(layout["xaxis"]["dtick"]) >= 1
    assert layout["yaxis"]["ticktext"] == ["a", "b<br>c", "d"]


@each(
    "draw",
    [
        lambda axis: axis.imshow(np.eye(2)),
        lambda axis: axis.pcolormesh(np.eye(2)),
        lambda axis: axis.scatter([1], [2], rasterized=True),
        lambda axis: axis.plot([1], [2], marker=r"$a$"),
    ],
)
@each("has_legend", [False, True])
def test_what_has_no_counterpart_leaves_the_picture_alone_with_its_legend(draw, has_legend):
    figure, axis = plt.subplots()
    axis.plot([0, 1], label="a line")
    draw(axis)
    if has_legend:
        figure.legend()
        assert read(figure)["data"] == []
        (entry,) = read(figure)["layout"]["meta"]["legend"]
        assert entry["label"] == "a line"
        assert [shape["stroke"] for shape in entry["shapes"]] == ["#0173b2"]
    else:
        assert read(figure) is None


def test_an_earlier_figure_leaves_nothing_behind(tmp_path):
    for draw in (lambda axis: axis.plot([1]), lambda axis: axis.imshow(np.eye(2))):
        figure, axis = plt.subplots()
        draw(axis)
        paths = style.save(figure, tmp_path, "own")
        assert sorted(paths) == sorted(tmp_path.iterdir())
    assert "own.json" not in [path.name for path in paths]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    ladder, search = (tmp_path_factory.mktemp(name) for name in ("ladder", "search"))
    fake_results.write(ladder)
    fake_results.write_search(search, POINTS, [0.06, 0.05, 0.04], importance={"head.lr": 1.0})
    return {"ladder": LadderResults(load(ladder)), "search": load_search(search)}


@each(
    ("room", "name", "said"),
    [
        ("ladder", "tradeoff", ["+ one", "network seed 1, head seed 1", "ECE (%)"]),
        ("ladder", "reliability", ["bin (", "mean confidence (%)"]),
        ("ladder", "confidence", ["bin (", "accuracy (%)"]),
        ("ladder", "sparsity", ["epoch of stage II"]),
        ("search", "history", ["suggestion 2", "head.lr: 0.02", "Accuracy (%)"]),
        ("search", "front", ["suggestion 2", "head.lr: 0.02"]),
        ("search", "sensitivity", ["suggestion 2", "ECE (%)"]),
        ("search", "share", ["distance from the best"]),
    ],
)
def test_points_of_our_figures_tell_what_they_are(results, room, name, said):
    registry = {"ladder": LADDER_FIGURES, "search": SEARCH_FIGURES}[room]
    text = json.dumps(read(registry[name].draw(results[room]))["data"])
    assert [words for words in said if words not in text] == []


def test_the_points_of_a_figure_are_the_trials(results):
    sweep = results["ladder"].sweep
    found = read(LADDER_FIGURES["tradeoff"].draw(results["ladder"]))
    small = [t for t in found["data"] if t["mode"] == "markers" and len(t["x"]) > 1]
    values = sorted(value for trace in small for value in trace["y"])
    expected = sorted(float(f"{100 * v:.6g}") for v in sweep.trials["test/ece"])
    assert values == expected


def test_the_centre_of_a_mean_is_hit_before_whatever_lies_within_its_mark(results):
    data = read(LADDER_FIGURES["tradeoff"].draw(results["ladder"]))["data"]
    named = [trace for trace in data if "text" in trace]
    means = [t for t in named if "mean over" in t["text"][0] and t["marker"]["size"] > 6]
    centres = data[-len(means) :]
    assert len(means) == len(results["ladder"].sweep.rungs)
    for mean, centre in zip(means, centres, strict=True):
        # Plotly prefers small marks, and of those up to 6 px the one that was drawn last.
        assert (centre["marker"]["size"], centre["opacity"]) == (6, 0)
        assert all(centre[key] == mean[key] for key in ("x", "y", "text"))
