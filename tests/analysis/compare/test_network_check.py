"""The network check: whether networks are over-confident, and the warning if they are not."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.compare.gather import over_seeds
from analysis.compare.intervals import over_both
from analysis.compare.network_check import (
    compute_baseline_check,
    compute_network_check,
    known_networks,
    measure_views,
)
from analysis.compare.significance import judge
from analysis.load import load
from analysis.report import write_report
from tests import fake_results
from tests.support import sample

RIVALS = ("base", "variant", "variant", "variant")
GAPS = {"over": 0.05, "neither": 0.001, "under": -0.05}
WARNING = "may not carry over to networks that are over-confident"


@fake_results.made_once
def write(out, gap, seeds, **options):
    fake_results.write(out, seeds=seeds, published=False, kinds=RIVALS)
    if gap is not None:
        fake_results.add_network_check(out, gap, **options)


def written(out, gap, seeds=8, **options):
    write(out, gap, seeds, **options)
    return load(out)


@pytest.mark.parametrize("only_heads", [False, True])
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("name", sample(GAPS, 2))
def test_the_sentence_about_the_base_has_its_interval(name, seeds, only_heads, tmp_path):
    check = compute_network_check(written(tmp_path, GAPS[name], seeds, only_heads=only_heads))
    assert check.networks == seeds
    assert check.train == pytest.approx(0.99 + 0.001 * (seeds - 1) / 2)
    assert check.gap == pytest.approx(GAPS[name] - 0.002 * (seeds == 1))
    least = 1.96 * 0.004
    assert least <= check.half + 1e-5 <= (least if seeds == 1 else 2 * least) + 2e-5
    sentences = {"over": "is over-confident by", "under": "is under-confident by"}
    sentence = sentences.get(name, "not significantly over- or under-confident")
    assert sentence in check.sentence
    assert f"fits train to {100 * check.train:.2f} %" in check.sentence
    assert bool(check.why_no_verdict) == (name != "over") == (WARNING in check.sentence)


def test_unmasked_heads_show_whether_networks_fit_their_views(tmp_path):
    sweep = written(tmp_path, GAPS["over"])
    assert compute_network_check(sweep).fits_views  # unknown without such heads
    # The rung with curves, which end at 53 %.
    methods = sweep.trials["head_method"].mask(sweep.trials["rung"] == 2, "retrain")
    unmasked = replace(sweep, trials=sweep.trials.assign(head_method=methods))
    check = compute_network_check(unmasked)
    assert (check.views, check.fits_views) == (pytest.approx(0.53), False)
    assert "fit the views of train that heads see to only 53.00 %" in check.sentence
    # Another run on the same networks learns it from this one.
    views = measure_views(unmasked)
    assert set(views) == set(sweep.trials["network_id"])
    assert compute_network_check(replace(sweep, views=views)).views == check.views
    fitting = dict.fromkeys(views, 0.998)
    assert compute_network_check(replace(sweep, views=fitting)).sentence == (
        compute_network_check(sweep).sentence
    )
    without_heads = replace(sweep, trials=sweep.trials.assign(head_method=None), views=views)
    assert compute_network_check(without_heads).fits_views


@pytest.mark.parametrize("drift", [-0.01, 0.01])
@pytest.mark.parametrize("order", [1, -1])
def test_the_check_prefers_rows_of_networks_to_rows_of_heads(order, drift):
    cells = {"head_method": None, "test/confidence_gap": 0.05, "base/test/confidence_gap": None}
    head = {
        "head_method": "tst",
        "test/confidence_gap": 0.2,
        "base/test/confidence_gap": 0.05 + drift,
    }
    same = {"network_id": "a", "network_method": "ce", "posthoc_method": None, "status": "done"}
    rows = pd.DataFrame([{**same, **row} for row in (cells, head)][::order])
    assert known_networks(rows)["gap"].tolist() == [0.05]


def test_results_without_the_check_have_p_values_and_no_verdict(tmp_path):
    sweep = written(tmp_path, None)
    check = compute_network_check(sweep)
    assert check.sentence == "The over-confidence of the base network was not recorded"
    assert not check.why_no_verdict
    assert judge(over_seeds(sweep, "ece"), "wilcoxon", "vanilla").comparisons["p"].notna().all()


def test_a_comparison_is_checked_by_its_plain_networks(tmp_path):
    sweep = written(tmp_path, 0.05, seeds=2, method="ls")
    assert compute_network_check(sweep).method == "ls"
    trials = sweep.trials.copy()
    is_plain = trials["rung"] == 3
    names = ["network_method", "network_id"]
    trials.loc[is_plain, names] = [["ce", "plain 0"], ["ce", "plain 1"]]
    trials.loc[is_plain, "base/test/confidence_gap"] = -0.2
    check = compute_network_check(replace(sweep, trials=trials))
    assert (check.method, check.networks, check.gap) == ("ce", 2, -0.2)


@pytest.mark.parametrize("column", ["select/confidence_gap", "base/select/confidence_gap"])
def test_a_search_is_checked_by_its_baseline_on_select(column):
    head = "mac_cal" if column.startswith("base") else None
    row = {"rung": -1, "status": "done", "network_id": "a", "head_method": head}
    trials = pd.DataFrame(
        [{**row, column: 0.1, f"{column}_se": 0.01}, {**row, "rung": 0, column: -0.5}]
    )
    check = compute_baseline_check(trials)
    assert (check.gap, check.split, check.networks) == (0.1, "select", 1)
    assert "over-confident by 10.00 ± 1.96 points on select (1 network;" in check.sentence
    assert compute_baseline_check(trials[["rung", "status"]]).sentence.endswith("not recorded")


@pytest.mark.parametrize("networks", [1, 3, 5])
@pytest.mark.parametrize("spread", [0.0, 0.01])
def test_the_interval_of_the_gap_has_its_nominal_coverage(networks, spread):
    """Networks of one recipe on one set of images: of both there are others."""
    chance = np.random.default_rng(0)
    images, sd, repeats, covered = 400, 0.3, 600, 0
    if networks == 1:
        spread = 0.0  # of one network no spread is known, which the sentence says
    for _ in range(repeats):
        hardness = chance.normal(0, sd, images)
        logits = chance.normal(0, sd / 2, (networks, images)) + hardness
        gaps = logits + 0.05 + chance.normal(0, spread, (networks, 1))
        errors = gaps.std(1) / images**0.5
        gap, half = over_both(gaps.mean(1), errors.mean())
        covered += abs(gap - 0.05) <= half
    assert covered / repeats > 0.93


@pytest.mark.parametrize("name", sample(GAPS, 1))
def test_every_page_and_table_has_the_check(name, tmp_path):
    written(tmp_path, GAPS[name])
    printed = write_report(tmp_path)
    texts = [path.read_text() for path in tmp_path.glob("tables/ladder.*") if path.suffix != ".csv"]
    texts += [printed, (tmp_path / "report.html").read_text()]
    for text in texts:
        assert "Base network (ce) fits train to 99.35" in text.replace("\\", "")
        assert (WARNING in text) == (name != "over")
    significance = (tmp_path / "tables/significance.md").read_text()
    assert "Holm's correction over" in significance
    assert "chi-square" in significance
    assert (WARNING in significance) == (name != "over")
