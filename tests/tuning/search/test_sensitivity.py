"""Searches of one setting at a time, and the ranges that lose no more than the noise."""

from dataclasses import replace

import pytest

from analysis.search.load import load_search
from analysis.search.tables import find_varied, sensitivity
from tests.fake_results import write_search
from tests.tuning.search.support import definition_of
from tune_calib.api import statistics
from tune_calib.results.manifests import SearchManifest

CENTER = {"head.shape": "linear", "head.lr": 0.01}


def test_each_point_differs_from_the_center_in_one_setting():
    definition = definition_of("retrain", sampler="one-at-a-time")
    center = definition.candidates.defaults | {"head.lr": 0.02}
    definition = replace(definition, around=definition.candidates.space.active(center))
    points = definition.points[len(definition.candidates.first()) :]
    assert points[0] == definition.around
    for point in points[1:]:
        shared = point.keys() & definition.around.keys()
        assert sum(point[name] != definition.around[name] for name in shared) == 1
    assert {point["head.lr"] for point in points if point["head.lr"] != 0.02} >= {1e-4, 0.3}
    assert definition.identity != definition_of("retrain", sampler="one-at-a-time").identity


def test_a_flat_range_ends_before_the_first_level_that_loses_more(tmp_path):
    rates = [0.0001, 0.001, 0.01, 0.05, 0.1]
    points = [CENTER | {"head.lr": rate} for rate in rates]
    write_search(tmp_path, points, [0.04, 0.09, 0.05, 0.0499, 0.2])
    manifest = SearchManifest.read(tmp_path)
    question = manifest.question.model_copy(update={"sampler": "one-at-a-time", "around": CENTER})
    manifest.model_copy(update={"question": question}).write(tmp_path)
    search = load_search(tmp_path)
    assert find_varied(search, "head.lr") == dict(enumerate(rates))
    (table,) = sensitivity(search)
    (record,) = [row for row in table.records if row["setting"].text == "head.lr"]
    assert record["loses at most the noise"].text == "0.01 to 0.05"
    assert table.notes == ["head.lr from 0.01 to 0.05 loses at most the noise."]
    assert (record["worst"].text, record["loses"].text) == ("0.1", "15.00")
    row = statistics.sensitivity(tmp_path).rows.set_index("setting").loc["head.lr"]
    assert row["flat"] == [0.01, 0.05]
    assert row["loses"] == pytest.approx(0.15)  # a fraction, as in all files


@pytest.mark.parametrize("words", [["--sampler", "tpe"], ["--grid", "head.lr=0.1"]])
def test_only_the_local_sampler_takes_a_center(words, refusal, tmp_path):
    sampler = [] if "--sampler" in words else ["--sampler", "one-at-a-time"]
    message = refusal("search", "retrain", "--around", tmp_path, *sampler, *words)
    assert "--around goes with --sampler one-at-a-time" in message
