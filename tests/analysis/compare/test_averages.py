"""Averages over columns, and the bars of ECE's two parts."""

import json

import pytest

from analysis.compare.gather import collect
from analysis.compare.ranks import average
from analysis.compare.ranks import draw_averages as draw
from analysis.compare.ranks import view_averages as view
from tests import fake_results
from tune_calib.files.documents import seal
from tune_calib.spec.names import CHANCE


def averages_of(*folders, metrics=("ece", "accuracy"), table=None):
    return average({metric: collect(folders, table, metric) for metric in metrics})


def write_resnets(out, seeds):
    """A run of another backbone, its trials others than those of ``fake_results.write``."""
    fake_results.write(out, seeds=seeds)
    for path in (out / "trials").glob("*.parquet"):
        fake_results.set_cells(path, {"backbone": "resnet18", "spec_hash": f"r{path.stem}"})
    manifest = out / "sweep.json"
    plain = json.loads(manifest.read_text())
    for planned in plain["planned"]:
        planned["spec_hash"] = f"r{planned['spec_hash']}"
    manifest.write_bytes(seal(plain))


def test_averages_are_over_seeds_and_then_over_columns(tmp_path):
    fake_results.write(tmp_path / "one", seeds=1)
    write_resnets(tmp_path / "three", seeds=3)
    averages = averages_of(tmp_path / "one", tmp_path / "three")
    assert len(averages.columns) == 2
    for rung, label in enumerate(fake_results.LABELS):
        one, three = fake_results.value(rung, 0), fake_results.value(rung, 1)
        assert averages.values.loc[label, "ece"] == pytest.approx((one + three) / 2)


@pytest.mark.parametrize(
    ("table", "method", "metric", "mean"),
    [("fedlas/table4", "CE", "o_ece", 7.70), ("fedlas/table4", "FeDLaS-MbLS", "u_ece", 0.98)],
)
def test_a_published_table_is_averaged_over_its_columns(table, method, metric, mean):
    averages = averages_of(metrics=("o_ece", "u_ece"), table=table)
    assert round(100 * averages.values.loc[method, metric], 2) == mean
    assert len(averages.columns) == 3


def test_a_trial_at_chance_in_one_column_is_never_the_best(tmp_path):
    fake_results.write(tmp_path / "flagged", seeds=1, flags={3: CHANCE})
    write_resnets(tmp_path / "other", seeds=1)
    (table,) = view(averages_of(tmp_path / "flagged", tmp_path / "other")).tables
    ranks = {row["method"].text: row["ECE (%) ↓"].rank for row in table.records}
    # The ECE of the control is the smallest, so that no other one is marked.
    assert ranks == {"vanilla": 0, "+ one": 0, "+ two": 0, "control †": 0}


def test_the_bars_of_a_method_are_its_ece():
    averages = averages_of(table="fedlas/table4", metrics=("o_ece", "u_ece"))
    (axis,) = draw(averages).axes
    widths = [bar.get_width() for bar in axis.patches]
    methods = len(averages.values)
    ends = [over + under for over, under in zip(widths[:methods], widths[methods:], strict=True)]
    assert ends == pytest.approx(list(100 * averages.values.sum(axis=1)))
    assert [label.get_text() for label in axis.get_yticklabels()] == list(averages.values.index)
