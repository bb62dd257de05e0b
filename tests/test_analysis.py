import subprocess
import sys

import pytest

from analysis import figures, reliability, tables
from analysis.ladder import best_first, ladder_table, published_columns, varied
from analysis.load import load
from analysis.published import published
from analysis.report import status, write_report
from tests import fake_results
from tune_calib.errors import UserError


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path)
    return tmp_path


def cell(table, label, metric, name):
    return table[(table["label"] == label) & (table["metric"] == metric)][name].item()


def test_means_spreads_and_changes(out):
    table = ladder_table(load(out))
    assert cell(table, "vanilla", "ece", "mean") == pytest.approx(0.11)
    assert cell(table, "vanilla", "ece", "sd") == pytest.approx(0.01)
    assert cell(table, "+ two", "ece", "change_before") == pytest.approx(-0.02)
    assert cell(table, "+ two", "ece", "change_base") == pytest.approx(-0.04)
    assert cell(table, "control", "ece", "change_base") == pytest.approx(-0.06)
    assert table[table["label"] == "control"]["change_before"].isna().all()
    assert set(table["n"]) == {3}


def test_the_best_depends_on_the_metrics_direction_and_ties_share(out):
    tidy = ladder_table(load(out))
    means = {m: tidy[tidy["metric"] == m]["mean"] for m in ("accuracy", "ece", "mce")}
    assert best_first("accuracy", means["accuracy"]) == pytest.approx([0.9, 0.89])
    assert best_first("ece", means["ece"]) == pytest.approx([0.05, 0.07])
    assert best_first("mce", means["mce"]) == [0.5]


def test_markdown_marks_best_and_second_in_percent(out):
    text = tables.markdown(load(out))
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "**5.00 ± 1.00**" in lines["control"]
    assert "<u>7.00 ± 1.00</u>" in lines["+ two"]
    assert "**90.00 ± 0.00**" in lines["vanilla"]
    assert "| 3.68" in lines["vanilla"].replace("  ", " ")
    assert "3 seeds, network and head vary together" in text


def test_latex_has_the_papers_columns_under_their_own_head(out):
    text = tables.latex(load(out))
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\multicolumn{2}{c}{published", "3.68"):
        assert word in text
    columns = text.splitlines()[0].count("r", text.splitlines()[0].index("{l"))
    body = [
        line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    assert {line.count("&") for line in body} == {columns}
    assert text.count("{") == text.count("}")


def test_published_numbers_are_fractions():
    table = published("maccal/table5")
    rows = table[(table["method"] == "Vanilla") & (table["dataset"] == "cifar10")]
    assert rows[rows["metric"] == "ece"]["value"].item() == pytest.approx(0.0368)
    with pytest.raises(UserError, match="maccal/table5"):
        published("maccal/table99")


def test_a_ladder_without_a_published_table_has_no_such_columns(tmp_path):
    fake_results.write(tmp_path, published=False)
    sweep = load(tmp_path)
    assert published_columns(sweep).empty
    assert "paper" not in tables.markdown(sweep)


def test_one_seed_has_no_spread_and_no_complaint(tmp_path):
    fake_results.write(tmp_path, seeds=1)
    assert "±" not in tables.markdown(load(tmp_path)).split("mean ±")[0]
    write_report(tmp_path)


@pytest.mark.parametrize("bad", ["diverged", "crashed"])
def test_a_rung_that_failed_is_told_and_does_not_enter_a_mean(tmp_path, bad):
    fake_results.write(tmp_path, bad=bad)
    text = write_report(tmp_path)
    assert f"3 x + two: {bad}, the loss is not finite" in text
    assert f"3 {bad}" in status(tmp_path)
    assert f"3 {bad}" in (tmp_path / "tables" / "ladder.md").read_text()


def test_missing_trials_are_told_loudly(out):
    (out / "trials" / "2-1.parquet").unlink()
    assert "INCOMPLETE: 1 of 12 trials missing" in write_report(out)
    assert "+ two: 2 done, 1 missing" in status(out)


def test_no_result_yet_is_a_sentence(out):
    for path in (out / "trials").iterdir():
        path.unlink()
    assert "no result yet" in write_report(out)


def test_bins_are_pooled_by_their_counts(out):
    pooled = reliability.pooled_bins(load(out), 1)
    assert pooled["count"].tolist() == [0] * 6 + [60] * 9
    assert pooled["share"].sum() == pytest.approx(1)
    assert pooled["accuracy"].isna().tolist() == [True] * 6 + [False] * 9
    assert pooled["accuracy"][14] == pytest.approx(14 / 15)


def test_the_trajectory_is_of_rungs_whose_q_moves(out):
    sweep = load(out)
    assert [rung["label"] for rung in figures.adaptive_rungs(sweep)] == ["+ two"]
    assert figures.trajectory(sweep, 2, "q")["mean"].tolist() == pytest.approx([0.51, 0.52, 0.53])


def test_equal_results_give_equal_bytes(out):
    def content():
        write_report(out)
        files = [*(out / "tables").iterdir(), *(out / "figures").iterdir()]
        return {path.name: path.read_bytes() for path in files}

    first = content()
    assert len(first) == 12
    assert content() == first


def test_what_varied_is_said(out):
    sweep = load(out)
    sweep.manifest.update(paired_seeds=False, network_seeds=[0])
    assert varied(sweep) == "3 head seeds on 1 network: the spread is that of the head alone"


def test_a_damaged_manifest_is_one_line(out):
    (out / "sweep.json").write_text("{")
    with pytest.raises(UserError, match="not whole"):
        load(out)


def test_analysis_needs_neither_torch_nor_ray():
    program = (
        "import sys, analysis.report; sys.exit(any(m in sys.modules for m in ('torch', 'ray')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
