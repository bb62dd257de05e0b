"""Pictures of calibration: what is drawn, on numbers worked by hand."""

import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from analysis.figure import LADDER_FIGURES
from analysis.ladder.figures.bins import consistency_band, draw_confidence, pooled_bins
from analysis.ladder.figures.mechanisms import draw_norm_confidence, draw_prototypes
from analysis.ladder.figures.shift import corruption_rows, draw_corruption
from analysis.ladder.figures.tradeoff import PANELS, cost_table, draw_cost, draw_tradeoff
from analysis.ladder.results import LadderResults, angles, costs
from analysis.load import load
from analysis.shifts import FAMILIES
from analysis.tidy import unbeaten
from tests import fake_results
from tune_calib.results.tables import SCHEMAS, write_results, write_table


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path)
    return tmp_path


def results(out):
    return LadderResults(load(out))


def bins_of(counts, confidences, trials=1):
    counts = np.array(counts)
    return pd.DataFrame(
        {
            "count": counts,
            "confidence": confidences,
            "share": counts / counts.sum(),
            "trials": trials,
        }
    )


def test_chance_is_the_binomial_interval_of_the_bin():
    band = consistency_band(bins_of([0, 10_000], [np.nan, 0.8]))
    assert band.index.tolist() == [1]
    half = 1.96 * np.sqrt(0.8 * 0.2 / 10_000)
    assert band["low"].item() == pytest.approx(0.8 - half, abs=1e-3)
    assert band["high"].item() == pytest.approx(0.8 + half, abs=1e-3)


def test_the_consistency_band_of_one_sample_is_everything_and_pooling_keeps_it():
    band = consistency_band(bins_of([1, 9_999], [0.5, 0.9]))
    assert band.loc[0].tolist() == [0, 1]
    pooled = consistency_band(bins_of([500, 500], [0.4, 0.9]))
    five = consistency_band(bins_of([2500, 2500], [0.4, 0.9], trials=5))
    pd.testing.assert_frame_equal(pooled, five)


def test_a_calibrated_network_lies_within_chance_and_another_does_not(out):
    bins = pooled_bins(load(out), 1)
    band = consistency_band(bins)
    shown = bins[bins["count"] > 0]
    assert bins["trials"].unique().tolist() == [3]
    assert shown["confidence"].between(band["low"], band["high"]).all()


def test_right_and_wrong_samples_add_up(out):
    figure = draw_confidence.draw(results(out))
    axis = figure.axes[0]
    right, wrong = axis.containers
    assert sum(bar.get_height() for bar in [*right, *wrong]) == pytest.approx(100)
    accuracy, confidence = (line.get_xdata()[0] for line in axis.lines)
    assert sum(bar.get_height() for bar in right) == pytest.approx(100 * accuracy)
    assert confidence - accuracy == pytest.approx(1 / 30)  # half a bin


def test_the_front_holds_the_methods_that_no_other_dominates():
    means = pd.DataFrame(
        {"accuracy": [90, 92, 91, 89, 92, 90], "ece": [2, 5, 3, 4, 5, 2.5]}, index=list("abcdef")
    )
    assert unbeaten(means, ["accuracy", "ece"])[::-1].index.tolist() == ["a", "c", "e", "b"]


def test_methods_side_by_side_have_a_front_and_steps_have_arrows(tmp_path):
    fake_results.write(tmp_path / "steps")
    fake_results.write(tmp_path / "methods", kinds=("base", "variant", "variant", "variant"))
    tradeoff = LADDER_FIGURES["tradeoff"]
    steps, methods = results(tmp_path / "steps"), results(tmp_path / "methods")
    assert "Pareto" in tradeoff.full_caption(methods)
    assert "Arrows" in tradeoff.full_caption(steps)
    steps, methods = draw_tradeoff.draw(steps), draw_tradeoff.draw(methods)
    dashed = [line for line in methods.axes[0].lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1
    # Invented: each rung loses a point of accuracy and two of ECE, so all are on the front.
    assert list(dashed[0].get_ydata()) == pytest.approx([5, 7, 9, 11])
    assert not [line for line in steps.axes[0].lines if line.get_linestyle() == "--"]


def costly(out, **measured):
    row = {"schema_version": 1, "spec_hash": "1-0", "rung": 1, "status": "done", **measured}
    write_results(out, "1-0", {"trials": [row]})
    return load(out)


def test_the_cost_of_a_trial_is_its_own_time_and_the_peak_memory(out):
    measured = {"wall_s": 30.0, "own_s": 2.0, "population": 15, "peak_memory_bytes": 2**30}
    table = cost_table(costly(out, head="{}", **measured)).set_index("quantity")
    assert table.loc["own_s", ["n", "median", "least", "most"]].tolist() == [1, 2, 2, 2]
    assert table.loc["memory_mib", "median"] == pytest.approx(1024)


def test_the_bars_are_the_medians_and_nothing_measured_is_no_figure(out):
    assert draw_cost.draw(results(out)) is None
    figure = draw_cost.draw(LadderResults(costly(out, own_s=30.0, peak_memory_bytes=2**30)))
    assert [bar.get_width() for bar in figure.axes[0].patches] == [30]
    assert figure.axes[0].get_yticklabels()[0].get_text() == "+ one (n = 1)"


def test_network_bank_and_head_are_apart_and_summed(tmp_path):
    fake_results.write(tmp_path, seeds=2)
    fake_results.add_network_check(tmp_path)
    for path in (tmp_path / "trials").glob("[01]-*.parquet"):
        rung, seed = map(int, path.stem.split("-"))
        fake_results.set_cells(path, {"own_s": (100.0, 4.0)[rung] + seed})
        if rung:
            fake_results.set_cells(path, {"bank_s": 5.0})
    measured = costs(load(tmp_path))
    names = ["network_s", "bank_s", "own_s", "total_s", "ratio"]
    assert measured.loc["1-1", names].tolist() == [101, 5, 5, 111, 111 / 101]
    assert measured.loc["0-1", names].tolist() == [0, 0, 101, 101, 1]
    assert measured.loc["2-0", names].isna().tolist() == [False, True, True, True, True]
    figure = draw_cost.draw(results(tmp_path))
    assert [axis.get_xlabel() for axis in figure.axes] == list(PANELS.values())[:2]
    assert figure.axes[1].texts[1].get_text() == "110 (1.09 x)"


def sampled(out, confidence):
    frame = pd.DataFrame(
        {
            "spec_hash": "1-0",
            "split": "select",
            "epoch": [1, 1, 2, 2, 2],
            "sample": [0, 1, 0, 1, 2],
            "gate": 1,
            "indicator": [0.0, 1.0, -1.0, 0.0, 1.0],
            "confidence": confidence,
            "correct": [False, True, False, True, True],
        }
    )
    table = pa.table({n: pa.array(frame[n], from_pandas=True) for n in frame})
    write_results(out, "1-0", {"trials": _rows(out)}, table.cast(SCHEMAS["samples"]))
    return load(out)


def _rows(out):
    network = '{"method":"fedlas_ls","params":{"indicator":"norm_l1","normalise":true}}'
    row = {"schema_version": 1, "spec_hash": "1-0", "rung": 1, "status": "done"}
    return [{**row, "network_seed": 0, "network": network}]


def test_the_dots_are_the_last_epoch_with_both_correlations(out):
    sweep = sampled(out, [0.5, 0.5, 0.25, 0.75, 0.5])
    axis = draw_norm_confidence.draw(LadderResults(sweep)).axes[0]
    dots = axis.collections[0].get_offsets()
    assert dots.tolist() == [[-1, 0.25], [0, 0.75], [1, 0.5]]
    assert axis.get_title() == "+ one\nr = 0.50, rho = 0.50, n = 3"
    assert axis.get_xlabel() == "norm_l1 (normalised)"


def test_no_dots_without_a_finished_trial(out):
    shutil.rmtree(out / "trials")
    write_results(out, "1-0", {"trials": [{**_rows(out)[0], "status": "failed"}]})
    assert draw_norm_confidence.draw(LadderResults(load(out))) is None


def test_corruption_starts_at_the_clean_numbers_of_the_trial(out):
    assert draw_corruption.draw(LadderResults(load(out))) is None
    fake_results.add_shifts(out, ["generated/fog"])
    sweep = load(out)
    _, table = corruption_rows(sweep)
    clean = table[table["severity"] == 0]
    eces = sweep.trials.set_index("spec_hash")["test/ece"]
    assert len(clean)
    assert clean["ece"].tolist() == eces[clean["spec_hash"]].tolist()

    axis = draw_corruption.draw(LadderResults(sweep)).axes[0]
    labels = axis.get_legend_handles_labels()[1]
    assert labels == list(sweep.labels.values())
    for line, rung in zip(axis.lines, sweep.labels, strict=True):
        expected = table[table["rung"] == rung].groupby("severity")["ece"].mean()
        assert line.get_xdata().tolist() == expected.index.tolist() == [0, 1, 2, 3, 4, 5]
        assert line.get_ydata().tolist() == pytest.approx((100 * expected).tolist())


def test_equally_spread_classes_are_equally_far():
    degrees = angles(np.tile(10.0 * np.eye(4), (5, 1)), np.tile(np.arange(4), 5))
    assert degrees == pytest.approx(np.full(6, np.degrees(np.arccos(-1 / 3))))


def test_the_map_has_a_dot_a_sample_and_is_the_same_twice(out):
    sweep = load(out)
    assert draw_prototypes.draw(LadderResults(sweep)) is None
    chance = np.random.default_rng(0)
    labels = np.arange(30) % 3
    logits = [(5 * np.eye(3)[k] + chance.normal(size=3)).astype(np.float16) for k in labels]
    columns = {"spec_hash": ["1-0"] * 30, "label": labels, "logits": logits}
    write_table(out, "logits", "1-0", pa.table(columns))
    maps = [draw_prototypes.draw(LadderResults(sweep)).axes[0] for _ in range(2)]
    places = [axis.collections[0].get_offsets() for axis in maps]
    assert places[0].shape == (30, 2)
    assert (places[0] == places[1]).all()
    assert "30 samples" in maps[0].get_title()


def test_published_corruptions_are_drawn_before_generated_ones(out):
    fake_results.add_shifts(out, ["generated/fog", "corrupt/fog"])
    assert corruption_rows(load(out))[0] == "corrupt"


def test_many_kinds_are_boxes_and_few_have_panels_of_their_own(out):
    for kinds, shown in ((FAMILIES["generated"][:2], 4), (FAMILIES["generated"], 2)):
        fake_results.add_shifts(out, [f"generated/{kind}" for kind in kinds])
        sweep = load(out)
        family, table = corruption_rows(sweep)
        assert family == "generated"
        assert set(table["severity"]) == set(range(6))
        assert set(table["kind"]) == set(kinds)
        drawn = draw_corruption.draw(LadderResults(sweep))
        assert len(drawn.axes) == shown
        caption = LADDER_FIGURES["corruption"].full_caption(LadderResults(sweep))
        assert "generated corruptions" in caption
        assert "n = 3 trials of each rung" in caption
        assert ("over 14 kinds" in caption) is (shown == 2)
