"""Searches that a table answers, through the same driver as any search."""

import json

import numpy as np
import pandas as pd
import pytest

import tune_calib
from tests.support import here
from tests.tuning.search.support import definition_of
from tune_calib.errors import UserError
from tune_calib.results.manifests import SearchOutcome
from tune_calib.results.tables import read_table
from tune_calib.tuning.work.replay import KEY, TableRecord, encode, load_table

EPOCHS = (2, 6)
METRICS = ("accuracy", "ece", "nll")
POINTS = 24


def write_table(path, points=POINTS, diverging=()):
    """Write a table of ``ls`` whose NLL is a known function of its first setting, without noise."""
    candidates = definition_of("ls").candidates
    drawn = [*candidates.first(), *candidates.space.sobol(points, 0)][:points]
    rows = []
    for number, point in enumerate(drawn):
        nll = 1 + encode_one(candidates.space, point)[0]
        for epochs in EPOCHS:
            for seed, epoch in ((s, e) for s in (1, 0) for e in range(epochs, 0, -1)):
                values = (0.9, nll / 10, nll * (1 + epochs - epoch) + 0.01 * (seed - 0.5))
                row = {f"select/{name}": x for name, x in zip(METRICS, values, strict=True)}
                status = "diverged" if number in diverging else "done"
                row |= {"point": number, "epochs": epochs, "seed": seed, "epoch": epoch}
                rows.append(row | {"status": status, "settings": json.dumps(point)})
    frame = pd.DataFrame(rows)
    record = TableRecord(
        method="ls",
        given={"data": {"dataset": "digits"}, "network": {"epochs": 6}},
        space={name: setting.plain() for name, setting in candidates.space.settings.items()},
        seeds=2,
        epochs=list(EPOCHS),
        baseline=[dict.fromkeys(METRICS, 0.9) | {"epochs": epochs} for epochs in EPOCHS],
        r2={"nll": {"final": 0.93, "curve": 0.9}},
    )
    frame.attrs = {KEY: record.model_dump(mode="json")}
    frame.to_parquet(path)
    return str(path)


def encode_one(space, point):
    return encode({name: s.plain() for name, s in space.settings.items()}, [point])[0]


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path / "table.parquet")


def replayed(table, out, **options):
    options = {"trials": 8, "seeds": 2, "metric": "nll", **options}
    return tune_calib.search("ls", replay=table, out=str(out), **options)


def values_of(out):
    rows = read_table(out, "trials").to_pandas().set_index("spec_hash")
    assert set(rows["device"]) == {"replay"}
    return rows.sort_index()[[f"select/{name}" for name in METRICS]]


@pytest.mark.slow
def test_a_search_repeats_and_an_extended_one_equals_one_that_ran_as_a_whole(table, tmp_path):
    for answer in ("surrogate", "nearest"):
        whole, part = tmp_path / f"{answer}-whole", tmp_path / f"{answer}-part"
        replayed(table, whole, replay_answer=answer)
        replayed(table, part, replay_answer=answer, trials=3)
        # As after a kill: rows of earlier suggestions are lost.
        next(part.glob("trials/*.parquet")).unlink()
        assert here("resume", part, "--trials", 8).returncode == 0
        pd.testing.assert_frame_equal(values_of(whole), values_of(part))
        assert SearchOutcome.read(whole).chosen == SearchOutcome.read(part).chosen


def test_nearest_answers_with_the_values_of_points_that_are_not_used_yet(table, tmp_path):
    replayed(table, tmp_path / "run", replay_answer="nearest", trials=POINTS)
    rows = read_table(tmp_path / "run", "trials").to_pandas()
    rows = rows[rows["rung"] >= 0]
    content = pd.read_parquet(table).query("epochs == 6 and epoch == 6")
    # Every point of the table answers one suggestion, each seed by its own values.
    for seed, part in rows.groupby("network_seed"):
        expected = content.loc[content["seed"] == seed, "select/nll"]
        np.testing.assert_allclose(np.sort(part["select/nll"]), np.sort(expected), rtol=1e-9)
    with pytest.raises(UserError, match="each of which answers one suggestion"):
        replayed(table, tmp_path / "run", replay_answer="nearest", trials=POINTS + 1)


def test_the_surrogate_answers_close_to_the_function_of_the_table(tmp_path):
    table = write_table(tmp_path / "table.parquet", points=300)
    replayed(table, tmp_path / "run", sampler="random", trials=20)
    space = definition_of("ls").candidates.space
    outcome = SearchOutcome.read(tmp_path / "run")
    rows = read_table(tmp_path / "run", "trials").to_pandas().set_index("spec_hash")
    true, answered = [], []
    for record in outcome.suggestions:
        true.append(1 + encode_one(space, record.point)[0])
        answered.append(rows.loc[record.specs, "select/nll"].mean())
    assert np.corrcoef(true, answered)[0, 1] > 0.95


def test_points_that_diverged_are_answered_as_diverged(tmp_path):
    table = write_table(tmp_path / "table.parquet", diverging={0})
    replayed(table, tmp_path / "run", replay_answer="nearest", trials=3)
    statuses = [record.status for record in SearchOutcome.read(tmp_path / "run").suggestions]
    assert statuses == ["diverged", "done", "done"]
    assert np.isfinite(load_table(table).curves).all()


def test_an_inactive_setting_differs_from_every_active_value():
    space = {
        "kind": {"choices": [None, "a"], "only_if": {}},
        "x": {"low": 0.01, "high": 1.0, "log": True, "only_if": {"kind": ["a"]}},
    }
    points = [{"kind": None}, {"kind": "a", "x": 0.1}, {"kind": "a", "x": 1.0}]
    half = 2**-0.5
    expected = [[half, 0, 0.5, 0], [0, half, 0.5, 1], [0, half, 1, 1]]
    np.testing.assert_allclose(encode(space, points), expected)


@pytest.mark.slow
def test_a_replay_cannot_be_published_and_says_what_it_is(table, tmp_path):
    out = tmp_path / "run"
    replayed(table, out)
    for words in (
        ["evaluate", out],
        ["ablate", "--path", out],
        ["export", out, tmp_path / "model.safetensors"],
    ):
        done = here(*words)
        assert done.returncode == 2
        assert "was replayed: its trials were not trained" in done.stderr
    assert here("report", out).returncode == 0
    assert "replayed, not trained" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 3}, "takes `epochs` from its table"),
        ({"metric": "brier"}, "has no brier"),
        ({"replay": __file__}, "is no table for replays"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(table, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tune_calib.search(
            **{"method": "ls", "replay": table, "out": str(tmp_path / "r"), **options}
        )


def test_another_method_and_a_changed_table_are_refused(table, tmp_path):
    with pytest.raises(UserError, match="is a table of ls, not fl"):
        tune_calib.search("fl", replay=table, out=str(tmp_path / "r"))
    replayed(table, tmp_path / "run", trials=2)
    write_table(tmp_path / "table.parquet", points=POINTS - 1)
    done = here("resume", tmp_path / "run", "--trials", 4)
    assert (done.returncode, "has changed since this search began" in done.stderr) == (2, True)
