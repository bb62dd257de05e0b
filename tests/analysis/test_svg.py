"""Figures as SVG: tooltips that stand over their points, and pictures that a page may hold."""

import re
from xml.etree import ElementTree as ET

import matplotlib.pyplot as plt
import numpy as np
import pytest

from analysis import style
from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES
from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.search.load import load_search
from analysis.svg import inline_svg, label_points, tooltips
from tests import fake_results

POINTS = [
    {**fake_results.DEFAULTS, "head.lr": rate, "head.epochs": epochs}
    for rate, epochs in ((0.1, 2), (0.05, 3), (0.02, 4))
]


@pytest.fixture(autouse=True)
def _styled():
    """Draw in the style of reports, whose sizes tooltips refer to."""
    style.theme()


def draw(axis, kind, x=(1, 2), y=(3, 4)):
    if kind == "plot":
        return axis.plot(x, y, "o")[0]
    if kind == "errorbar":
        return axis.errorbar(x, y, yerr=[1, 1], fmt="D").lines[0]
    return getattr(axis, kind)(x, y)


def tooltips_of(figure):
    figure.draw_without_rendering()
    return tooltips(figure)


@pytest.mark.parametrize("kind", ["scatter", "plot", "errorbar", "bar", "barh"])
def test_a_tooltip_stands_over_the_point_that_it_is_of(kind):
    figure, axis = plt.subplots()
    label_points(draw(axis, kind), ["vanilla <1>\nseed 0", "b"])
    boxes = {text: box for box, text in tooltips_of(figure)}
    assert boxes.keys() == {"vanilla <1>\nseed 0", "b"}
    for text, point in (("vanilla <1>\nseed 0", (1, 3)), ("b", (2, 4))):
        if kind == "barh":
            point = point[::-1]
        x, y = axis.transData.transform(point) * 72 / figure.dpi
        box = boxes[text].padded(0.1)
        assert box.contains(x, y)


def test_only_visible_points_have_tooltips():
    figure, axis = plt.subplots()
    label_points(draw(axis, "plot", (1, 2, 3, 4), (1, np.nan, 3, 4)), list("abcd"))
    axis.set_xlim(2.5, 3.5)
    assert [text for _, text in tooltips_of(figure)] == ["c"]


def test_a_point_on_a_larger_one_can_be_pointed_at():
    figure, axis = plt.subplots()
    label_points(axis.plot([1], [1], "o", markersize=5)[0], ["small"])
    label_points(axis.plot([1], [1], "o", markersize=20)[0], ["large"])
    assert [text for _, text in tooltips_of(figure)] == ["large", "small"]


def test_marks_at_every_third_epoch_are_labelled_alone():
    figure, axis = plt.subplots()
    (line,) = axis.plot(range(9), range(9), "o", markevery=(1, 3))
    label_points(line, ["1", "4", "7"])
    for box, text in tooltips_of(figure):
        x, y = axis.transData.transform((int(text), int(text))) * 72 / figure.dpi
        assert box.contains(x, y)
    label_points(line, ["1"])
    with pytest.raises(ValueError, match="zip"):
        tooltips_of(figure)


def saved(tmp_path, figure):
    style.save(figure, tmp_path, "own")
    return (tmp_path / "own.svg").read_bytes()


CONTROLS = "\x1b]0;evil\x07 \u202e -- </title><script>"


@pytest.mark.filterwarnings("ignore:Glyph")
def test_texts_are_escaped_and_control_characters_are_written_out(tmp_path):
    figure, axis = plt.subplots()
    axis.set_title("a\x1bb")
    label_points(draw(axis, "plot"), [CONTROLS, "b & c"])
    image, _ = inline_svg(saved(tmp_path, figure), "own", '"><b>')
    root = ET.fromstring(image)
    assert [title.text for title in root.iter("title")] == [
        r"\u001b]0;evil\u0007 \u202e -- </title><script>", "b & c"
    ]  # fmt: skip
    assert root.get("aria-label") == '"><b>'
    assert not re.search("[\x00-\x08\u202e]|<script", image)


def test_ids_are_those_of_the_picture_and_what_refers_to_them_finds_them(tmp_path):
    figure, axis = plt.subplots()
    axis.bar([1], [1], hatch="//")
    axis.plot([1, 2], [1, 2], "o")
    axis.imshow(np.eye(2))
    content = saved(tmp_path, figure)
    images = [inline_svg(content, key, "t")[0] for key in ("a", "b")]
    ids = [set(re.findall(r' id="([^"]+)"', image)) for image in images]
    assert ids[0]
    assert not ids[0] & ids[1]
    for image, own in zip(images, ids, strict=True):
        used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', image))
        assert {a or b for a, b in used} == own
        assert 'href="data:image/png;base64,' in image
        assert len(image) < len(content)


FOREIGN = b"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 width="72pt" viewBox="0 0 72 72" onload="alert(1)"><script>alert(1)</script>
 <style>body {display: none}</style><a xlink:href="javascript:alert(1)"><path d="M 0 0"/></a>
 <foreignObject><p xmlns="http://www.w3.org/1999/xhtml">x</p></foreignObject>
 <image xlink:href="https://example.org/x.png" href="https://example.org/y.png"/>
 <use xlink:href="other.svg#x"/><g onclick="alert(1)"><title>&lt;b&gt;</title></g></svg>"""


def test_a_picture_from_elsewhere_brings_no_script_style_or_link():
    image, width = inline_svg(FOREIGN, "own", "t")
    assert width == 1
    assert image == (
        '<svg viewBox="0 0 72 72" role="img" aria-label="t"><image /><use />'
        "<g><title>&lt;b&gt;</title></g></svg>"
    )


@pytest.mark.parametrize("content", [b"", b"<svg/>", b"<html></html>", b"<svg", FOREIGN[:100]])
def test_a_file_other_than_svg_is_refused(content):
    with pytest.raises(ET.ParseError):
        inline_svg(content, "own", "t")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    ladder, search = (tmp_path_factory.mktemp(name) for name in ("ladder", "search"))
    fake_results.write(ladder)
    fake_results.write_search(search, POINTS, [0.06, 0.05, 0.04], importance={"head.lr": 1.0})
    return {"ladder": LadderResults(load(ladder)), "search": load_search(search)}


@pytest.mark.parametrize(
    ("room", "name", "words"),
    [
        ("ladder", "tradeoff", ["vanilla\nmean over 3 trials", "ECE (%)", "network seed 1"]),
        ("ladder", "reliability", ["bin (", "mean confidence (%)", "% of all"]),
        ("ladder", "confidence", ["bin (", "samples"]),
        ("ladder", "sparsity", ["+ two\nepoch 1\nshare of weights kept q: "]),
        ("search", "history", ["suggestion 2 (chosen)", "head.lr: 0.02", "Accuracy (%)"]),
        ("search", "sensitivity", ["suggestion 1\n", "head.lr: 0.05"]),
        ("search", "front", ["suggestion 0\n"]),
    ],
)
def test_points_of_figures_have_tooltips(room, name, words, results):
    registry = LADDER_FIGURES if room == "ladder" else SEARCH_FIGURES
    texts = "\n\n".join(text for _, text in tooltips_of(registry[name].draw(results[room])))
    assert [word for word in words if word not in texts] == []


def test_every_trial_of_the_tradeoff_has_its_tooltip(results):
    texts = [text for _, text in tooltips_of(LADDER_FIGURES["tradeoff"].draw(results["ladder"]))]
    sweep = results["ladder"].run
    assert len(texts) == len(sweep.trials) + len(sweep.rungs)
    assert len(set(texts)) == len(texts)


def test_a_scatter_of_thousands_of_points_is_an_image_without_tooltips():
    figure, axis = plt.subplots()
    points = axis.scatter(range(2000), range(2000))
    label_points(points, (pytest.fail("no text is needed") for _ in range(2000)))
    assert points.get_rasterized()
    figure.draw_without_rendering()
    assert tooltips(figure) == []
    plt.close(figure)
