"""The report of a search, on results that are invented and on the example that ships."""

import json
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from typer.testing import CliRunner

import tune_calib
from analysis import style
from analysis.figure import SEARCH_FIGURES
from analysis.report import write_search_report
from analysis.search import tables as search_tables
from analysis.search.figures.points import best_so_far, coordinates, draw_history
from analysis.search.figures.settings import draw_pairs, draw_shares
from analysis.search.load import is_complete, load_search
from tests import drawing, fake_results
from tests.support import Reader, sample
from tune_calib.api import statistics
from tune_calib.cli import app
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.results.manifests import SearchOutcome
from tune_calib.spec.space import SPACES


def texts(table):
    return [{head: cell.text for head, cell in record.items()} for record in table.records]


EXAMPLE = Path(search_tables.__file__).parents[1] / "example" / "search"
LINEAR = {"head.shape": "linear", "head.lr": 0.001}
NARROW = {"head.shape": "bottleneck", "head.width": 64, "head.lr": 0.05}
POINTS = [fake_results.DEFAULTS, LINEAR, NARROW, {**LINEAR, "head.lr": 0.1}]
ECES = [0.06, 0.2, 0.04, 0.05]


@pytest.fixture
def out(tmp_path):
    shares = {"head.lr": 0.7, "head.shape": 0.3}
    fake_results.write_search(tmp_path / "one", POINTS, ECES, importance=shares)
    return tmp_path / "one"


def test_a_suggestion_beyond_the_guard_is_no_best_to_be_near(out):
    path = out / "outcome.json"
    outcome = json.loads(path.read_text())
    outcome["suggestions"][2]["is_within"] = False  # the lowest ECE, 0.04
    path.write_bytes(seal(outcome))
    search = load_search(out)
    rows = texts(search_tables.share(search))
    assert [row["suggestions"] for row in rows] == ["1", "1", "1", "2", "2", "2"]
    assert {row["of"] for row in rows} == {"4"}
    (line,) = draw_shares.draw(search).axes[0].lines
    assert len(line.get_xdata()) == 2


def test_a_suggestion_is_a_row_with_the_spread_over_its_seeds(out):
    table = load_search(out).table()
    assert table["mean"].tolist() == pytest.approx(ECES)
    assert table["sd"].tolist() == pytest.approx([0.01 / 2**0.5] * 4)
    assert table["head.width"].tolist()[::2] == ["null", 64]
    assert table["head.width"].isna().tolist() == [False, True, False, True]
    assert table["is_within"].tolist() == [True, False, True, True]
    assert load_search(out).table("accuracy")["mean"].tolist() == pytest.approx(
        [0.9 - ece / 2 for ece in ECES]
    )


def test_the_best_so_far_counts_only_what_keeps_the_accuracy(tmp_path):
    fake_results.write_search(tmp_path, [LINEAR, *POINTS], [0.3, *ECES])
    search = load_search(tmp_path)
    best = best_so_far(search.table(), "ece").tolist()
    assert best[2:] == pytest.approx([0.06, 0.04, 0.04])
    assert best[0] != best[0]  # nothing within the guard yet


def test_the_best_table_names_baseline_defaults_and_the_choice(out):
    rows = texts(search_tables.best(load_search(out)))
    names = [row["suggestion"] for row in rows]
    assert names == ["baseline, cross entropy", "0 (defaults)", "2 (chosen)", "3"]
    assert rows[2]["ECE (%) ↓"] == "4.00 ± 0.71"
    assert rows[3]["head.width"] == "-"


def test_importance_shows_the_searched_range_and_published_values(out):
    rows = texts(search_tables.importance(load_search(out)))
    assert rows[0] == {
        "setting": "head.lr",
        "importance for ECE (%)": "70.0",
        "searched in": "0.0001 to 0.1, log",
        "default": "0.01",
        "other published": "0.1",
        "chosen": "0.05",
    }
    assert rows[2]["searched in"] == "null | 64; only if head.shape is bottleneck"


def test_importance_is_listed_in_fractions_by_measure_and_pair(out):
    outcome = SearchOutcome.read(out)
    intervals = {"ece": {"head.lr": [0.5, 0.9]}}
    numbers = {"head.lr": [0.6, 0.4, 0.8], "head.shape": [0.2, 0.1, 0.3], "head.width": [0.0] * 3}
    variances = {"ece": {**numbers, "head.lr x head.shape": [0.1, 0.0, 0.2]}}
    update = {"intervals": intervals, "variances": variances, "r2": {"ece": 0.7}}
    importances = outcome.importance.model_copy(update=update)
    outcome.model_copy(update={"importance": importances}).write(out)
    rows = statistics.importance(out).rows.set_index(["measure", "setting"])[
        ["share", "low", "high"]
    ]
    assert rows.loc[("PED-ANOVA", "head.lr")].tolist() == [0.7, 0.5, 0.9]
    assert rows.loc[("PED-ANOVA", "head.shape"), "share"] == 0.3  # without an interval
    assert rows.loc[("fANOVA", "head.lr x head.shape")].tolist() == [0.1, 0.0, 0.2]


SETTINGS = [name for name in SPACES["mac_cal"].settings if name != "head.clip_grad_norm"]


@pytest.fixture
def wide(tmp_path, monkeypatch):
    """A search of thirteen settings, one of them with numbers and null."""
    space = {name: {"kind": "float", "low": 0.0, "high": 40.0, "only_if": {}} for name in SETTINGS}
    space[SETTINGS[0]] = {"kind": "categorical", "choices": [None, 64, 128, 512], "only_if": {}}
    points = []
    for number in range(40):
        point = {name: (number * (7 + index)) % 40.0 for index, name in enumerate(SETTINGS)}
        points.append({**point, SETTINGS[0]: [512, None, 64, 128][number % 4]})
    monkeypatch.setattr(fake_results, "SPACE", space)
    monkeypatch.setattr(fake_results, "DEFAULTS", points[0])
    eces = [0.01 + number / 1000 for number in range(40)]
    fake_results.write_search(tmp_path / "wide", points, eces)
    return tmp_path / "wide"


def test_a_number_beside_null_is_at_its_height(wide):
    search = load_search(wide)
    heights = coordinates(search, search.table())[SETTINGS[0]]
    assert heights[:4].tolist() == pytest.approx([2 / 3, 1, 0, 1 / 3])


@style.applied()
def test_each_pair_of_the_most_important_settings_has_a_heat_map(wide):
    figure = draw_pairs.draw(load_search(wide))
    figure.draw_without_rendering()
    pairs = {}
    for axis in figure.axes[:-1]:
        if axis.get_visible():
            pairs[axis.get_xlabel(), axis.get_ylabel()] = axis
    assert list(pairs) == [(SETTINGS[i], SETTINGS[j]) for j in (1, 2, 3) for i in range(j)]
    for axis in pairs.values():
        assert sum(int(text.get_text()) for text in axis.texts) == 40
    first = pairs[SETTINGS[0], SETTINGS[1]]
    texts = [label.get_text() for label in first.get_xticklabels()]
    assert texts == ["64", "128", "512", "null"]


def test_suggestions_and_settings_are_columns_that_files_can_store(wide, tmp_path):
    search = tune_calib.open_results(wide)
    search.suggestions.to_parquet(tmp_path / "python.parquet")
    stored = pd.read_parquet(tmp_path / "python.parquet")
    assert stored[SETTINGS[0]].tolist() == ["512", "null", "64", "128"] * 10
    assert stored[SETTINGS[1]].dtype == float
    done = CliRunner().invoke(app, ["export", str(wide), str(tmp_path / "command.parquet")])
    assert done.exit_code == 0, done.output
    assert "40 suggestions written" in done.output
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "command.parquet"), stored)


def test_figures_mark_default_choice_and_what_failed(tmp_path):
    statuses = ["done", "crashed", "done", "diverged"]
    eces = [0.06, None, 0.04, None]
    fake_results.write_search(tmp_path, POINTS, eces, statuses, planned=6)
    search = load_search(tmp_path)
    style.theme()
    figure = draw_history.draw(search)
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"crashed (1; no value)", "diverged (1; no value)", "chosen"} <= labels
    assert "the method's defaults" in labels
    told = SEARCH_FIGURES["history"].full_caption(search)
    assert "2 done, 1 diverged, 1 crashed, 2 missing suggestions; guard: at most" in told
    plt.close("all")


def test_a_suggestion_at_chance_has_no_value_in_a_figure(tmp_path):
    fake_results.write_search(tmp_path, POINTS, ECES)
    whole = load_search(tmp_path)
    is_first = whole.trials["spec_hash"].isin(whole.outcome.suggestions[1].specs)
    flags = pd.Series("chance", index=whole.trials.index).where(is_first)
    search = replace(whole, trials=whole.trials.assign(flags=flags))
    assert list(search.table()["mean"]) == list(whole.table()["mean"])
    shown = search.figure_table()
    assert list(shown["mean"].isna()) == [number == 1 for number in shown["number"]]
    style.theme()
    labels = {text.get_text() for text in draw_history.draw(search).legends[0].get_texts()}
    assert "at chance (1; no value)" in labels
    for name in ("history", "sensitivity", "heat_map", "front", "parallel"):
        assert "1 at chance have no value here" in SEARCH_FIGURES[name].full_caption(search)
    plt.close("all")


def test_a_suggestion_at_chance_has_its_sign_in_every_table(tmp_path):
    fake_results.write_search(tmp_path, POINTS, ECES)
    fake_results.add_flags(tmp_path / "trials" / "all.parquet", "chance")
    report = write_search_report(tmp_path)
    assert "† chance (8 trials): accuracy on select" in report
    search = load_search(tmp_path)
    marked = [row["suggestion"].text for row in search_tables.suggestions(search).records]
    assert all(name.endswith(" †") for name in marked)
    for table in (search_tables.best(search), search_tables.suggestions(search)):
        assert "† chance (8 trials)" in table.caption
    assert "† chance (8 trials)" in (tmp_path / "tables" / "best.md").read_text()
    assert "chance,chance" in (tmp_path / "tables" / "suggestions.csv").read_text()


def test_a_report_is_complete_and_its_links_lead_somewhere(out, with_figures):
    report = write_search_report(out)
    assert "Complete: all 4 planned suggestions ended (n = 4)." in report
    read = Reader((out / "report.html").read_text())
    assert read.open == []
    for link in read.values("href"):
        is_there = link[1:] in read.values("id") or (out / link).is_file()
        # Only PNG is drawn here.
        is_within = link.startswith("data:")
        assert is_within or is_there or link.endswith(".pdf"), link
    for name in ("best", "importance", "share"):
        assert (out / "tables" / f"{name}.md").exists()
        assert r"\toprule" in (out / "tables" / f"{name}.tex").read_text()


@pytest.mark.slow
def test_equal_results_give_equal_bytes_wherever_they_lie(out, tmp_path, with_figures):
    write_search_report(out)
    shares = {"head.lr": 0.7, "head.shape": 0.3}
    fake_results.write_search(tmp_path / "b" / "two", POINTS, ECES, importance=shares)
    write_search_report(tmp_path / "b" / "two")
    files = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
    assert len(files) > 10
    for name in files:
        assert (out / name).read_bytes() == (tmp_path / "b" / "two" / name).read_bytes(), name


NONE_DONE = {
    "history: not drawn, no suggestion is done",
    "no suggestion keeps the accuracy within the guard: none is chosen",
}


@pytest.mark.parametrize(
    ("points", "eces", "statuses", "message"),
    sample(
        [
            ([LINEAR], [0.05], None, {"share: not drawn, fewer than two suggestions are within"}),
            (POINTS[:2], [None, None], ["crashed", "diverged"], NONE_DONE),
            (POINTS, [0.05] * 4, None, {"importance: not drawn, too few to say"}),
            (POINTS, [0.0] * 4, None, {"Complete: all 4 planned"}),
        ],
        3,
    ),
)
def test_too_few_results_give_a_sentence(tmp_path, points, eces, statuses, message):
    fake_results.write_search(tmp_path, points, eces, statuses)
    drawn = ("share", "parallel", "importance", "sensitivity", "history", "front")
    with drawing.figures("png", names=drawn):
        report = write_search_report(tmp_path)
    for text in message:
        assert text in report
    assert (tmp_path / "report.html").exists()


def test_damage_and_mistakes_are_one_line(out):
    with pytest.raises(UserError, match="no NLL on select"):
        load_search(out).table("nll")
    (out / "outcome.json").write_text("{")
    with pytest.raises(UserError, match="is incomplete"):
        load_search(out)
    (out / "outcome.json").write_bytes(seal({"version": 99}))
    with pytest.raises(UserError, match="of a later tune-calib: update"):
        load_search(out)
    (out / "outcome.json").unlink()
    with pytest.raises(UserError, match=r"contains no outcome\.json"):
        load_search(out)


def test_the_example_is_a_real_search_whose_front_agrees_with_its_choice():
    search = load_search(EXAMPLE)
    table = search.table()
    assert is_complete(EXAMPLE)
    assert table["n"].unique().tolist() == [3]
    guard = search.manifest.question.objective.guard
    assert (table["drop"] - guard <= 1e-9).tolist() == table["is_within"].tolist()
    best = table[table["is_within"]].sort_values("mean")["number"]
    assert search.outcome.chosen == best.iloc[0]
    assert sum(search.outcome.importance.shares["ece"].values()) == pytest.approx(1)


@pytest.mark.slow
def test_figures_show_the_settings_and_the_metric_that_are_chosen():
    search = tune_calib.open_results(EXAMPLE)
    figure = search.figure("sensitivity", settings=["gamma", "head.tau0"], metric="accuracy")
    assert [axis.get_xlabel() for axis in figure.axes] == ["head.gamma", "head.tau0"]
    assert figure.axes[0].get_ylabel() == "select Accuracy (%) ↑"
    assert len(search.figure("parallel", settings=["gamma", "tau0"]).axes[0].get_xticks()) == 2
    heat = search.figure("heat_map", settings=["gamma", "tau0"])
    assert (heat.axes[0].get_xlabel(), heat.axes[0].get_ylabel()) == ("head.gamma", "head.tau0")
    counts = [int(text.get_text().split("n = ")[1]) for text in heat.axes[0].texts]
    assert sum(counts) == 80
    assert heat.axes[1].get_ylabel() == "ECE (%) ↓; darkest: worst"
    for name in ("history", "share", "front"):
        assert search.figure(name, metric="accuracy")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sensitivity", {"settings": "gama"}, "setting 'gama' was not searched"),
        ("heat_map", {"settings": ["gamma"]}, "heat_map shows two settings or more, not 1"),
        ("history", {"settings": ["gamma"]}, "figure history takes no settings"),
    ],
)
def test_a_wrong_choice_for_a_figure_is_one_line(name, options, message):
    with pytest.raises(UserError, match=message):
        tune_calib.open_results(EXAMPLE).figure(name, **options)


def test_lines_of_parallel_coordinates_are_logarithmic_where_the_search_is(out):
    search = load_search(out)
    heights = coordinates(search, search.table())
    assert heights["head.lr"].tolist() == pytest.approx([0.5, 0, 0.849, 1], abs=0.001)
    assert heights["head.width"].isna().tolist() == [False, True, False, True]
    assert heights["head.shape"].tolist() == [0, 1, 0, 1]
