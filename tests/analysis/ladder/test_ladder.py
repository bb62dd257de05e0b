import json
import math
from dataclasses import replace

import pytest

from analysis.ladder import tables
from analysis.ladder.figures.bins import draw_reliability, pooled_bins
from analysis.ladder.figures.mechanisms import adaptive_rungs, trajectory
from analysis.ladder.figures.tradeoff import chains, draw_tradeoff
from analysis.ladder.means import ladder_table, may_win
from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.published import published
from analysis.report import run_status, write_report
from analysis.tables.latex import latex
from analysis.tables.render import markdown
from analysis.text import Cell, ranked
from tests import fake_results
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.results.tables import write_results
from tune_calib.spec.metrics import METRICS


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path)
    return tmp_path


def cell(table, label, metric, name):
    return table[(table["label"] == label) & (table["metric"] == metric)][name].item()


def test_the_table_has_means_spreads_and_changes(out):
    table = ladder_table(load(out))
    assert cell(table, "vanilla", "ece", "mean") == pytest.approx(0.11)
    assert cell(table, "vanilla", "ece", "sd") == pytest.approx(0.01)
    assert cell(table, "+ two", "ece", "change_before") == pytest.approx(-0.02)
    assert cell(table, "+ two", "ece", "change_base") == pytest.approx(-0.04)
    assert cell(table, "control", "ece", "change_base") == pytest.approx(-0.06)
    assert table[table["label"] == "control"]["change_before"].isna().all()
    assert set(table["n"]) == {3}


def test_the_best_depends_on_the_direction_and_what_prints_alike_shares_a_rank():
    cells = [Cell.number("ece", value) for value in (0.05, math.nan, 0.07, 0.0500001, 0.09)]

    def ranks(*how):
        return [cell.rank for cell in ranked(cells, *how)]

    assert ranks("min") == [1, 0, 2, 1, 0]
    assert ranks("max") == [0, 0, 2, 0, 1]
    assert ranks(None) == [0] * 5
    assert ranks("min", [False, True, True, True, True]) == [0, 0, 2, 1, 0]
    assert [cell.rank for cell in ranked([cells[0], cells[0]], "min")] == [1, 1]


def test_a_mark_never_moves_on_to_a_worse_value():
    cells = [Cell.number("ece", value) for value in (0.05, 0.09, 0.07, 0.11)]

    def ranks(*may_win):
        return [cell.rank for cell in ranked(cells, METRICS["ece"], may_win)]

    assert ranks(True, True, True, True) == [1, 0, 2, 0]
    assert ranks(False, True, True, True) == [0, 0, 0, 0]
    assert ranks(True, True, False, True) == [1, 0, 0, 0]


@pytest.mark.parametrize(("metric", "worse", "better"), [("auroc", 0.5, 0.6), ("fpr95", 0.95, 0.8)])
def test_no_value_that_chance_reaches_is_the_best(metric, worse, better):
    def ranks(*values):
        cells = [Cell.number(metric, value) for value in values]
        return [cell.rank for cell in ranked(cells, METRICS[metric])]

    assert ranks(worse, worse) == [0, 0]
    assert ranks(worse, better) == [0, 1]


def test_a_rung_without_a_seed_of_others_is_compared_over_shared_ones_and_not_marked(out):
    whole = load(out)
    is_lost = (whole.trials["rung"] == 2) & (whole.trials["network_seed"] == 2)
    run = replace(whole, trials=whole.trials[~is_lost].reset_index(drop=True))
    table = ladder_table(run, ["ece", "nll"])
    assert cell(table, "+ two", "ece", "mean") == pytest.approx(0.065)
    assert cell(table, "+ two", "ece", "change_base") == pytest.approx(-0.04)
    assert cell(table, "+ two", "ece", "change_before") == pytest.approx(-0.02)
    assert cell(table, "control", "ece", "change_base") == pytest.approx(-0.06)
    assert may_win(run, "nll").to_dict() == {**may_win(whole, "nll").to_dict(), "+ two": False}


def test_markdown_marks_best_and_second_in_percent(out):
    text = markdown(tables.ladder(load(out)))
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "**5.00 ± 1.00**" in lines["control"]
    assert "<u>7.00 ± 1.00</u>" in lines["+ two"]
    assert "**90.00 ± 0.00**" in lines["vanilla"]
    assert "| 3.68" in lines["vanilla"].replace("  ", " ")
    assert "3 seeds of network and head" in text


def test_one_seed_has_no_spread_and_no_complaint(tmp_path):
    fake_results.write(tmp_path, seeds=1)
    assert "±" not in markdown(tables.ladder(load(tmp_path))).split("mean ±")[0]
    write_report(tmp_path)


@pytest.mark.parametrize("bad", ["diverged", "crashed"])
def test_a_failed_rung_is_reported_and_does_not_enter_a_mean(tmp_path, bad):
    fake_results.write(tmp_path, bad=bad)
    text = write_report(tmp_path)
    assert f"3 x + two: {bad}, the loss is not finite" in text
    assert f"3 {bad}" in run_status(tmp_path)
    assert f"3 {bad}" in (tmp_path / "tables" / "ladder.md").read_text()


def test_a_failed_rung_is_not_skipped_by_the_change_from_the_rung_before(tmp_path):
    fake_results.write(tmp_path, bad="diverged", bad_rungs=(1,))
    table = ladder_table(load(tmp_path))
    assert math.isnan(cell(table, "+ two", "ece", "change_before"))
    assert cell(table, "+ two", "ece", "change_base") == pytest.approx(-0.04)
    assert math.isnan(cell(table, "+ one", "ece", "mean"))


def test_missing_trials_are_reported_as_incomplete(out):
    (out / "trials" / "2-1.parquet").unlink()
    assert "INCOMPLETE: 1 of 12 trials missing" in write_report(out)
    status = run_status(out)
    assert "12 trials planned: 11 done, 1 missing" in status
    (row,) = (line.split() for line in status.splitlines() if line.startswith("+ two"))
    assert row[2:] == ["3", "2", "1"]  # planned, done, missing


def test_a_report_without_results_is_a_sentence(out):
    for path in (out / "trials").iterdir():
        path.unlink()
    assert "no result yet" in write_report(out)


def test_bins_are_pooled_by_their_counts(out):
    pooled = pooled_bins(load(out), 1)
    assert pooled["count"].tolist() == [0] * 6 + [60] * 9
    assert pooled["share"].sum() == pytest.approx(1)
    assert pooled["accuracy"].isna().tolist() == [True] * 6 + [False] * 9
    assert pooled["accuracy"][14] == pytest.approx(14 / 15)


def test_the_trajectory_is_of_rungs_whose_q_moves(out):
    sweep = load(out)
    assert [rung.label for rung in adaptive_rungs(sweep)] == ["+ two"]
    assert trajectory(sweep, 2, "q")["mean"].tolist() == pytest.approx([0.51, 0.52, 0.53])


def test_nothing_done_gives_a_table_and_sentences_instead_of_figures(tmp_path, with_figures):
    fake_results.write(tmp_path, bad="diverged", bad_rungs=(0, 1, 2, 3))
    text = write_report(tmp_path)
    assert "diverged (3/3)" in text
    for name in ("reliability", "sparsity", "tradeoff"):
        assert f"{name}: not drawn" in text
    assert not (tmp_path / "figures").exists()


def test_a_base_without_numbers_leaves_its_changes_out(tmp_path):
    fake_results.write(tmp_path, bad="diverged", bad_rungs=(0,))
    sweep = load(tmp_path)
    assert ladder_table(sweep).query("metric == 'ece'")["change_base"].isna().all()
    results = LadderResults(sweep)
    # The figures must bear an empty first panel and an arrow without a start.
    assert draw_reliability.draw(results) is not None
    assert draw_tradeoff.draw(results) is not None


def test_a_trial_that_was_run_again_counts_as_done(out):
    crashed = {"schema_version": 1, "spec_hash": "1-0", "rung": 1, "status": "crashed"}
    write_results(out, "0-earlier", {"trials": [crashed]})
    assert load(out).counts(1) == {"done": 3}


def test_published_values_stand_in_the_tidy_table(out):
    table = ladder_table(load(out))
    name = "published cifar10 densenet121"
    assert cell(table, "vanilla", "ece", name) == pytest.approx(0.0368)
    assert table[table["label"] == "control"][name].isna().all()


def test_each_base_starts_a_chain_and_controls_stand_after_a_rule(out):
    sweep = load(out)
    assert chains(sweep) == [[0, 1, 2]]
    assert "*controls*" in markdown(tables.ladder(sweep))
    sweep.manifest.rungs[2] = sweep.manifest.rungs[2].model_copy(update={"kind": "base"})
    assert chains(replace(sweep)) == [[0, 1], [2]]


def test_latex_has_the_states_of_trials_and_escapes_labels(tmp_path):
    fake_results.write(tmp_path, bad="crashed")
    path = tmp_path / "sweep.json"
    manifest = json.loads(path.read_text())
    manifest["rungs"][1]["label"] = "+ q_0 & 5%"
    path.write_bytes(seal(manifest))
    text = latex(tables.ladder(load(tmp_path)))
    assert r"+ q\_0 \& 5\%" in text
    ended = [record["trials"] for record in tables.ladder(load(tmp_path)).records]
    assert ended == [Cell("3", 3.0), Cell("3", 3.0), Cell("3 crashed"), Cell("3", 3.0)]
    assert "crashed (3/3)" in text
    assert "$-$2.00" in text


def test_published_numbers_are_fractions():
    table = published("maccal/table5")
    rows = table[(table["method"] == "Vanilla") & (table["dataset"] == "cifar10")]
    assert rows[rows["metric"] == "ece"]["value"].item() == pytest.approx(0.0368)
    with pytest.raises(UserError, match="maccal/table5"):
        published("maccal/table99")
