"""The report page as a file: self-contained, escaped, stable, complete or loudly not."""

import base64
import hashlib
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from analysis.ladder import tables
from analysis.ladder.files import page
from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.page.page import Gallery, describe_programs
from analysis.report import write_report
from analysis.tables import table
from analysis.tables.render import html
from analysis.tables.table import Table
from analysis.text import Cell, rounded
from analysis.tidy import by_rung, settings
from tests import fake_results
from tests.drawing import FORMATS
from tests.drawing import figures as drawn
from tests.support import Reader, here
from tune_calib.files.documents import seal
from tune_calib.results.tables import write_results
from tune_calib.spec.metrics import METRICS

# The figures of most tests: each takes most of a second in all formats.
SOME = ("reliability", "tradeoff")
SLOT = '{"epochs":2,"method":"ce","milestones":[0.5],"params":{"gamma":%s},"seed":1,"width":null}'


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path / "one")
    return tmp_path / "one"


def rendered(out):
    """The page without figures, which take most of the time."""
    return page(LadderResults(load(out)), Gallery(), [])


def texts(table, head):
    return [record[head].text for record in table.records]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a report, which no test changes."""
    folder = tmp_path_factory.mktemp("whole")
    fake_results.write(folder)
    with drawn(*FORMATS, names=SOME):
        write_report(folder)
    return folder


def change(out, **entries):
    path = out / "sweep.json"
    path.write_bytes(seal(json.loads(path.read_text()) | entries))


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(whole):
    read = Reader((whole / "report.html").read_text())
    assert read.open == []
    ids = read.values("id")
    assert len(ids) == len(set(ids))
    for link in read.values("href"):
        assert link == "data:," or link[1:] in ids or (whole / link).is_file(), link
    sources = read.values("src")
    assert [source.split(",")[0] for source in sources] == ["data:image/png;base64"] * len(SOME)
    assert [tag for tag, _ in read.tags if tag in ("iframe", "object", "form")] == []


@pytest.mark.slow
def test_equal_results_give_equal_bytes_wherever_they_lie(whole, tmp_path):
    def files(out):
        found = [out / "report.html", *out.glob("tables/*"), *out.glob("figures/*")]
        return {path.name: path.read_bytes() for path in found}

    first = files(whole)
    assert {"ladder.md", "ladder.tex", "ladder.csv"} <= first.keys()
    assert {"tradeoff.png", "tradeoff.pdf"} <= first.keys()
    fake_results.write(tmp_path / "elsewhere" / "two")
    with drawn(*FORMATS, names=SOME):
        write_report(tmp_path / "elsewhere" / "two")
    assert files(tmp_path / "elsewhere" / "two") == first
    assert str(whole).encode() not in first["report.html"]


def test_every_string_is_escaped(out):
    evil = "</script><img src=x onerror=alert(1)> & \"'"
    rungs = json.loads((out / "sweep.json").read_text())["rungs"]
    rungs[1] |= {"label": evil, "ingredient": evil}
    change(out, rungs=rungs, title=evil, setting=evil, command=evil)
    row = {"spec_hash": "3-0", "rung": 3, "rung_label": evil, "status": "crashed", "message": evil}
    write_results(out, "3-0", {"trials": [{**row, "data": '{"dataset":"digits"}'}]})
    text = rendered(out)
    assert "<img src=x" not in text
    assert text.count("</script>") == 1  # none of figures, which are left out here
    # Title, heading, setting, command; in the tables label, ingredient and message.
    assert text.count("&lt;/script&gt;&lt;img src=x") > 6


def test_only_the_script_of_the_page_may_run(whole, out):
    for text in ((whole / "report.html").read_text(), rendered(out)):
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
        own = dict(part.split(maxsplit=1) for part in policy.split("; "))
        for name in ("default-src", "base-uri", "form-action"):
            assert own[name] == "'none'"
        (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert own["script-src"] == f"'sha256-{digest}'"


CONTROLS = "\x1b]0;evil\x07 \x9b31m \r \u202e \u2066"


@pytest.mark.slow
def test_control_characters_are_written_out(out):
    rungs = json.loads((out / "sweep.json").read_text())["rungs"]
    rungs[1] |= {"label": CONTROLS, "ingredient": CONTROLS}
    change(out, rungs=rungs, title=CONTROLS, setting=CONTROLS, command=CONTROLS)
    row = {"spec_hash": "3-0", "rung": 3, "rung_label": CONTROLS, "status": "crashed"}
    row |= {"message": CONTROLS, "data": '{"dataset":"digits"}'}
    write_results(out, "3-0", {"trials": [row]})
    moved = out.rename(out.parent / CONTROLS.replace(" ", ""))
    outputs = [
        here(*words, moved).stdout for words in (["status"], ["analyze", "ranks"], ["report"])
    ]
    shown = html(tables.ladder(load(moved)))
    for text in (*outputs, shown, (moved / "report.html").read_text()):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
        assert r"\u001b]0;evil\u0007" in text
    assert r"\u001b" in here("status", f"no{CONTROLS}").stderr


def test_trials_that_ended_badly_are_named(tmp_path):
    bad = "diverged"
    fake_results.write(tmp_path, bad=bad)
    text = rendered(tmp_path)
    assert f"12 planned trials are done: 9 done, 3 {bad}" in text
    assert f"+ two: 3 of 3 {bad} (network seed/head seed 0/0, 1/1, 2/2)" in text
    table = tables.unfinished(load(tmp_path))
    assert set(texts(table, "reason")) == {"the loss is not finite"}
    assert texts(table, "spec") == ["2-0", "2-1", "2-2"]


@pytest.mark.parametrize(
    ("cell", "text", "value"),
    [
        (Cell.number("ece", 0.0784, 0.0156), "7.84 ± 1.56", 7.84),
        (Cell.number("ece", -0.00001), "0.00", 0.0),
        (Cell.formatted(0.00001, ".2g"), "1e-05", 1e-05),
        (Cell.span("ece", 0.01, 0.02), "1.00 to 2.00", 1.0),
        (Cell.measured(1234.5), "1234", 1234.0),
        (Cell.of(True), "True", None),
        (Cell.of("67066520"), "67066520", None),
        (Cell.number("ece", math.nan), "-", None),
    ],
)
def test_a_cell_is_sorted_by_the_number_that_it_prints(cell, text, value):
    assert (cell.text, cell.value) == (text, value)
    page_row = Table("key", "caption", [{"a": cell}]).rows[0]
    assert page_row == [cell]
    assert str(page_row[0].value) != "-0.0"


def test_the_number_of_a_cell_is_the_one_that_is_printed():
    for value in np.random.default_rng(0).normal(scale=0.3, size=4000):
        for metric in ("ece", "nll"):
            assert rounded(metric, value) == float(METRICS[metric].format(value))


def test_a_column_is_numeric_despite_cells_without_numbers():
    cells = (Cell.of(1.0), Cell.of(2.0), Cell.of(None), Cell.of("diverged (3/3)"))
    x = Cell.of("x")
    table = Table("key", "caption", [{"a": x, "b": shown, "c": x} for shown in cells])
    assert table.are_numbers == [False, True, False]


def test_a_table_too_long_for_a_browser_is_cut_with_a_note(out, monkeypatch):
    monkeypatch.setattr(table, "MAX_ROWS", 5)
    shown = tables.trials(load(out))
    assert len(shown.rows) == 5
    assert "The first 5 of 12" in shown.full_caption


def test_several_versions_and_revisions_of_the_program_are_named_with_their_trials():
    version, other = ('{"tune-calib": "1.0"}', '{"tune-calib": "2.0"}')
    first, modified = "a" * 40, "a" * 40 + "+"
    rows = pd.DataFrame(
        [(version, first), (version, first), (version, modified), (other, None), (None, None)],
        columns=["versions", "git_revision"],
    )
    assert describe_programs(rows) == [
        "Trials of 4 versions of the program: 1.0 aaaaaaaa (2), 1.0 aaaaaaaa modified (1), 2.0 (1),"
        " unknown (1)."
    ]
    assert describe_programs(rows[:2]) == describe_programs(rows[4:]) == []


def test_settings_are_flat_without_seeds_and_grouped_by_rung():
    trials = pd.DataFrame(
        {
            "rung": [0, 1, 1],
            "data": ['{"dataset":"digits"}'] * 3,
            "network": [None] * 3,
            "head": [None, SLOT % 0.5, SLOT % 0.75],
            "posthoc": [None] * 3,
        }
    )
    frame = settings(trials)
    assert list(frame) == [
        "data.dataset", "head.method", "head.epochs", "head.gamma", "head.milestones", "head.width"
    ]  # fmt: skip
    assert frame["head.gamma"].tolist() == [None, 0.5, 0.75]
    assert frame["head.width"].tolist() == [None, "null", "null"]
    assert frame["head.milestones"][1] == "[0.5]"
    # A hyper-parameter of a method may be called seed too: it is no seed of the slot.
    named = [json.dumps({"params": {"seed": a}, "seed": b}) for a, b in ((3, 7), (4, 7), (4, 8))]
    assert settings(trials.assign(head=named))["head.seed"].tolist() == [3, 4, 4]
    told = by_rung(trials, {0: "base", 1: "step"})
    assert told[told["setting"] == "data.dataset"]["rungs"].tolist() == ["all"]
    assert told[told["setting"] == "head.gamma"].values.tolist() == [
        ["head.gamma", 0.5, "step"],
        ["head.gamma", 0.75, "step"],
    ]


def test_the_page_leads_with_the_best_rung_its_decision_and_the_network(out):
    sweep = load(out)
    (lead,) = re.findall('<p class="lead">(.*?)</p>', rendered(out))
    means = {rung.label: sweep.of_rung(rung.index)["test/ece"].mean() for rung in sweep.rungs}
    best = min(means, key=means.get)
    change = METRICS["ece"].format(means[best] - means[sweep.rungs[0].label], signed=True)
    change = change.replace("-", "\N{MINUS SIGN}")
    assert f"Of 4 rungs compared by ECE on test, {best} has the best mean" in lead
    assert f"not separated from {sweep.rungs[0].label} (difference {change} points" in lead
    assert "--bootstrap 1000" in lead
    assert "the base network" in lead


def test_wide_tables_fold_columns_and_captions_fold_notes_and_settings(whole):
    text = (whole / "report.html").read_text()
    shown = tables.ladder(load(whole)).with_requested().without_blank()
    folded = [shown.heads[index] for index in shown.extra]
    assert "MCE (%) ↓" in folded
    assert "ECE (%) ↓" not in folded
    assert len(shown.heads) - len(folded) == 7
    assert f"Show all {len(shown.heads)} columns" in text
    assert "<summary>Full settings</summary>" in text
    narrow = Table("key", "caption", [{"a": Cell.of(1), "b": Cell.of(2)}], first=["b"])
    assert narrow.extra == []
