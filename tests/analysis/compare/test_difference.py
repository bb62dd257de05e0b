"""Two runs, their seeds matched: the differences are those of the trials, or none is given."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis.compare.difference import difference
from analysis.load import load
from tests import fake_results
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.results.tables import read_table, write_results


def sweep(out, shift=0.0, seeds=5, rename=None, again="-b", is_paired=True, **options):
    """A run of invented numbers, its trials others than those of ``fake_results.write``."""
    fake_results.write(out, seeds=seeds, **options)
    manifest = json.loads((out / "sweep.json").read_text())
    manifest["paired_seeds"] = is_paired
    for rung in manifest["rungs"]:
        rung["label"] = (rename or {}).get(rung["label"], rung["label"])
    for entry in manifest["planned"]:
        entry["spec_hash"] += again
    (out / "sweep.json").write_bytes(seal(manifest))
    for path in sorted((out / "trials").iterdir()):
        (row,) = read_table(out, "trials", path.stem).to_pylist()
        path.unlink()
        name = row["spec_hash"] + again
        moved = {} if row.get("test/ece") is None else {"test/ece": row["test/ece"] + shift}
        write_results(out, name, {"trials": [{**row, **moved, "spec_hash": name}]})
    return load(out)


def on_one_network(found):
    """The run as if all of its head seeds were on one network, whose own head is one trial."""
    planned = [
        replace(trial, network_seed=0)
        for trial in found.manifest.planned
        if trial.rung or trial.network_seed == 0
    ]
    seeds = {"paired_seeds": False, "network_seeds": [0]}
    return fake_results.with_manifest(found, **seeds, planned=planned)


@pytest.fixture
def first(tmp_path):
    fake_results.write(tmp_path / "a", seeds=5)
    return load(tmp_path / "a")


def test_the_difference_is_that_of_the_matched_trials(first, tmp_path):
    second = sweep(tmp_path / "b", seeds=4)
    # Noise, so that there is a spread to make an interval of.
    second.trials["test/ece"] += np.random.default_rng(0).normal(0.01, 0.01, len(second.trials))
    comparison = difference(first, second, ["ece"])
    for _, row in comparison.frame.iterrows():
        a, b = (
            s.trials[s.trials["rung_label"] == row["rung"]].set_index("network_seed")["test/ece"]
            for s in (first, second)
        )
        change = (b - a).dropna()  # of the seeds that both have
        ends = stats.t.interval(0.95, 3, change.mean(), stats.sem(change))
        assert (row["pairs"], row["better"]) == (4, (change < 0).sum())
        np.testing.assert_allclose([row["difference"], row["low"], row["high"]],
                                   [change.mean(), *ends])  # fmt: skip
        np.testing.assert_allclose(row["second"] - row["first"], row["difference"])


def test_a_shift_of_all_has_no_spread_and_no_interval(first, tmp_path):
    comparison = difference(first, sweep(tmp_path / "b", shift=0.02), ["ece"])
    np.testing.assert_allclose(comparison.frame["difference"], 0.02)
    assert comparison.frame["low"].isna().all()
    rows = comparison.tables[0].records
    assert {row["B - A"].text for row in rows} == {"+2.00"}
    assert {row["95 % interval"].text for row in rows} == {"-"}


def test_different_settings_are_listed(first, tmp_path):
    second = sweep(tmp_path / "b")
    for out, noise in ((first, 0.0), (second, 0.2)):
        out.trials["data"] = json.dumps({"dataset": "digits", "label_noise": noise})
    comparison = difference(first, second, ["ece"])
    assert [list(change.values()) for change in comparison.content["settings"]] == [
        ["data.label_noise", "0.0", "0.2"]
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rename": {n: f"{n}!" for n in fake_results.LABELS}}, "no rung has the same name"),
        ({"seeds": 1, "is_paired": False}, "cannot be matched"),
        ({"bad": "diverged", "bad_rungs": (0, 1, 2, 3)}, "no seed has a number in both"),
    ],
)
def test_unmatched_runs_are_refused(first, tmp_path, options, words):
    second = sweep(tmp_path / "b", **options)
    with pytest.raises(UserError, match=words):
        difference(first, second, ["ece"])
    with pytest.raises(UserError, match="given twice"):
        difference(first, first, ["ece"])


def test_a_rung_of_one_trial_is_one_pair_and_not_one_for_each_head_seed(first, tmp_path):
    fake_results.write(tmp_path / "b", seeds=5)
    second = load(tmp_path / "b")
    second.trials["test/ece"] += 0.02
    comparison = difference(on_one_network(first), on_one_network(second), ["ece"])
    pairs = comparison.frame.set_index("rung")["pairs"]
    assert pairs.to_dict() == {"vanilla": 1, "+ one": 5, "+ two": 5, "control": 5}
    assert comparison.frame["difference"].tolist() == pytest.approx([0.02] * 4)
    assert (comparison.frame["low"].isna() == (comparison.frame["decision"] == "undecided")).all()


def test_a_rung_of_one_trial_in_one_run_alone_is_a_pair_with_each_trial_of_the_other(
    first, tmp_path
):
    fake_results.write(tmp_path / "b", seeds=5)
    second = load(tmp_path / "b")
    planned = [
        replace(trial, network_seed=0, head_seed=trial.network_seed)
        for trial in second.manifest.planned
    ]
    seeds = {"paired_seeds": False, "network_seeds": [0]}
    second = fake_results.with_manifest(second, **seeds, planned=planned)
    comparison = difference(on_one_network(first), second, ["ece"])
    rows = comparison.frame.set_index("rung")
    assert rows["pairs"].to_dict() == {"vanilla": 5, "+ one": 5, "+ two": 5, "control": 5}
    of_one, of_all = fake_results.value(0, 0), fake_results.value(0, 2)
    assert rows.loc["vanilla", "difference"] == pytest.approx(of_all - of_one)
