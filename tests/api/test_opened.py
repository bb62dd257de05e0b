"""Results in Python: frames, tables, figures, and what a notebook shows of them."""

import base64
import io
import re
from dataclasses import replace

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from PIL import Image

import tune_calib
from analysis.ladder.tables import ladder
from analysis.load import load
from analysis.tables.render import markdown
from tests import fake_results
from tests.support import Reader
from tune_calib.errors import UserError
from tune_calib.spec.request import CompareRequest, build_request
from tune_calib.spec.resolve import resolve_settings

POINTS = [fake_results.DEFAULTS, {**fake_results.DEFAULTS, "head.lr": 0.05}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, a search and the two as the entries of an experiment file."""
    out = tmp_path_factory.mktemp("opened")
    fake_results.write(out / "all" / "sweep", bad="crashed", bad_rungs=(2,))
    fake_results.write_search(out / "all" / "tuned", POINTS, [0.06, 0.05])
    return out / "all"


def test_a_sweep_gives_its_rows_and_the_table_of_its_report(folder):
    sweep = tune_calib.open_results(folder / "sweep")
    assert isinstance(sweep.rows, pd.DataFrame)
    assert len(sweep.rows) == 12
    assert sweep.rows["test/ece"].dropna().between(0, 1).all()
    rows = sweep.rows.join(sweep.settings)
    (gamma,) = rows.loc[rows["rung"] == 1, "head.gamma"].unique()
    assert gamma == pytest.approx(0.1)
    assert sweep.table() == f"{markdown(ladder(load(folder / 'sweep')))}\n"
    assert "9 done" in repr(sweep)
    assert "3 crashed" in repr(sweep)
    assert "NLL" in sweep.table("nll")
    assert "| ECE" not in sweep.table("nll")
    with pytest.raises(UserError, match="ecee"):
        sweep.table("ecee")
    with pytest.raises(UserError, match="intervals"):
        sweep.table(intervals=True)


def test_a_notebook_shows_table_and_figure(folder):
    html = tune_calib.open_results(folder / "sweep")._repr_html_()
    tags = Reader(html)
    assert tags.open == []
    assert {"table", "img"} <= {tag for tag, _ in tags.tags}
    assert "<b>" in html  # the best of a column
    data = re.search('src="data:image/png;base64,([^"]+)"', html)[1]
    assert Image.open(io.BytesIO(base64.b64decode(data))).width > 500


def test_a_figure_leaves_the_notebook_as_it_was(folder):
    before, style = mpl.get_backend(), dict(mpl.rcParams)
    sweep = tune_calib.open_results(folder / "sweep")
    drawn = sweep.figure("reliability")
    assert drawn.axes
    assert sweep.figure("tradeoff").axes
    assert (mpl.get_backend(), dict(mpl.rcParams)) == (before, style)
    assert plt.get_fignums() == []  # else it would be shown twice, and kept
    with pytest.raises(UserError, match=r"reliabilty.*reliability"):
        sweep.figure("reliabilty")
    with pytest.raises(UserError, match="samples: not drawn"):
        sweep.figure("samples")


def test_a_search_gives_its_suggestions_and_the_choice(folder):
    search = tune_calib.open_results(folder / "tuned")
    assert list(search.suggestions["number"]) == [0, 1]
    assert search.chosen == POINTS[1]
    assert "| 1 (chosen)" in search.table()
    assert "chosen: trial 1" in str(search)
    assert len(search.rows) >= 2
    assert search.figure("history").axes
    assert Reader(search._repr_html_()).open == []
    assert "n = 2" in repr(search)


def test_a_comparison_accepts_the_choice_of_a_search(folder):
    chosen = tune_calib.open_results(folder / "tuned").chosen
    settings = resolve_settings(build_request(CompareRequest, {"methods": "ce", "set": chosen}))
    assert settings["head"]["lr"] == 0.05


def test_a_sweep_file_gives_its_entries(folder):
    results = tune_calib.open_results(folder)
    assert list(results) == ["sweep", "tuned"]
    assert repr(results["sweep"]) == repr(tune_calib.open_results(folder / "sweep"))
    rows = results.rows
    assert next(iter(rows)) == "entry"
    assert set(rows["entry"]) == {"sweep", "tuned"}
    assert len(rows) == sum(len(part.rows) for part in results.values())
    html, table, message = results._repr_html_(), results.table(), str(results)
    for name in results:
        assert f"## {name}" in table
        assert f"== {name} ==" in message
        assert f"<h3>{name}</h3>" in html
    assert Reader(html).open == []


@pytest.mark.slow
def test_reports_are_written_into_the_result_folders(folder):
    results = tune_calib.open_results(folder)
    over_all = results.report().read_text()
    for name in results:
        assert f'href="{name}/report.html"' in over_all
        assert (folder / name / "report.html").stat().st_size > 10_000
    assert results["sweep"].table() == (folder / "sweep/tables/ladder.md").read_text()
    assert results["tuned"].table() == (folder / "tuned/tables/best.md").read_text()


@pytest.mark.parametrize(
    "options", [{}, {"seeds": 2, "extend": True}, {"shift": ["noise"], "bootstrap": 200}]
)
def test_an_evaluation_of_an_opened_search_is_the_call_with_its_options(
    options, folder, monkeypatch
):
    calls = []
    monkeypatch.setattr(tune_calib, "evaluate", lambda out, **words: calls.append((out, words)))
    search = tune_calib.open_results(folder / "tuned")
    replace(search, study_storage="sqlite:///s.db").evaluate(**options)
    defaults = {"seeds": 5, "extend": False, "shift": (), "bootstrap": 0}
    settings = {**defaults, **options, "study_storage": "sqlite:///s.db"}
    assert calls == [(str(folder / "tuned"), settings)]
