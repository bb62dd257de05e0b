"""What the driver stores of a search: the space, every suggestion, the choice, importance."""

import json

import numpy as np
import pytest

from tests.tuning.search.support import ECE, GIVEN, row, study_in
from tune_calib.spec.names import SEARCH_OUTCOME
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.space import Space, uniform
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.search.definition import Objective, SearchDefinition, SuggestionResult
from tune_calib.tuning.search.importance import Surrogate
from tune_calib.tuning.search.outcome import write_outcome
from tune_calib.tuning.search.state import SearchState


def outcome_of(out, count, value, objective=ECE):
    """A search by random whose suggestions got a result each, and its outcome."""
    study = study_in(out, "random", objective=objective)
    definition = SearchDefinition("mac_cal", ResolvedRequest(GIVEN), objective, "random")
    state = SearchState(out, definition, study, count)
    for baseline in state.candidates.baseline():
        state.rows[baseline.spec.hash] = row(ece=0.1, accuracy=0.9)
    for number in range(count):
        result = value(study.suggestion(number).params)
        study.write_result(number, result)
        state.results[number] = result
    write_outcome(state, RunLocation(out, out / "store"))
    return json.loads((out / SEARCH_OUTCOME).read_text())


def by_q0(point):
    return SuggestionResult("done", (abs(point["head.q0"] - 0.6),), 0.0)


def test_the_deciding_setting_is_the_most_important(tmp_path):
    outcome = outcome_of(tmp_path, 60, by_q0)
    shares = outcome["importance"]["shares"]["ece"]
    assert next(iter(shares)) == "head.q0"
    assert shares["head.q0"] > 0.4
    assert sum(shares.values()) == pytest.approx(1)
    assert outcome["importance"]["top"] == 6
    assert outcome["baseline"] == {"ece": 0.1, "accuracy": 0.9}


def test_where_more_is_better_the_largest_count_as_the_best(tmp_path):
    objective = Objective(("accuracy",), 0.01)
    low = outcome_of(
        tmp_path,
        60,
        lambda p: SuggestionResult("done", (-abs(p["head.q0"] - 0.6),), 0.0),
        objective,
    )
    assert next(iter(low["importance"]["shares"]["accuracy"])) == "head.q0"


def test_the_outcome_holds_the_choice_and_what_failed(tmp_path):
    def result_at(point):
        return SuggestionResult("diverged") if point["head.q0"] > 0.6 else by_q0(point)

    outcome = outcome_of(tmp_path, 8, result_at)
    entries = outcome["suggestions"]
    failed = [entry for entry in entries if entry["status"] == "diverged"]
    assert failed
    assert all(entry["drop"] is None and not entry["is_within"] for entry in failed)
    assert entries[0]["point"] == outcome["defaults"]
    assert entries[1]["point"] == outcome["published"][0]
    values = {e["number"]: 0.6 - e["point"]["head.q0"] for e in entries if e["is_within"]}
    assert outcome["chosen"] == min(values, key=lambda number: (values[number], number))
    assert outcome["settings"]["head.lr"]["log"] is True


@pytest.mark.parametrize(
    ("count", "value", "message"),
    [
        (5, by_q0, "5 suggestions are done, but importance needs at least 30"),
        (30, lambda point: SuggestionResult("done", (0.5,), 0.0), "no setting distinguishes"),
        (20, lambda point: SuggestionResult("crashed"), "0 suggestions are done"),
    ],
    ids=["few", "ties", "crashed"],
)
def test_an_outcome_without_importance_has_a_reason(tmp_path, count, value, message):
    importance = outcome_of(tmp_path, count, value)["importance"]
    assert importance["shares"] == {}
    assert importance["statement"].startswith(message)


def test_the_variance_is_split_into_settings_and_their_interaction():
    space = Space("invented", {f"head.{name}": uniform(0, 1) for name in "abcd"})
    random = np.random.default_rng(0)
    points = [dict(zip(space.settings, row, strict=True)) for row in random.random((400, 4))]
    surrogate = Surrogate(space, points)
    # The variances of 3a and b are as 9 to 1, and a product of centred settings has no main effect.
    added = np.array([3 * point["head.a"] + point["head.b"] for point in points])
    shares = surrogate.split(added, np.arange(400), ["head.a", "head.b"])
    assert surrogate.compute_r2(added) > 0.95
    assert shares["head.a"] == pytest.approx(0.9, abs=0.06)
    assert shares["head.b"] == pytest.approx(0.1, abs=0.06)
    assert abs(shares["head.c"]) + abs(shares["head.a x head.b"]) < 0.02
    product = np.array([(point["head.a"] - 0.5) * (point["head.b"] - 0.5) for point in points])
    shares = surrogate.split(product, np.arange(400), ["head.a", "head.b"])
    assert shares["head.a x head.b"] > 0.8


def test_importances_have_intervals_and_no_ranking_where_a_surrogate_explains_nothing(tmp_path):
    (tmp_path / "known").mkdir()
    importance = outcome_of(tmp_path / "known", 60, by_q0)["importance"]
    assert importance["r2"]["ece"] > 0.5
    low, high = importance["intervals"]["ece"]["head.q0"]
    assert 0.2 < low < importance["shares"]["ece"]["head.q0"] < high
    share, low, high = importance["variances"]["ece"]["head.q0"]
    assert 0.5 < low <= high <= 1
    assert share > 0.5
    (tmp_path / "chance").mkdir()
    random = np.random.default_rng(0)

    def by_chance(point):
        return SuggestionResult("done", (random.random(),), 0.0)

    importance = outcome_of(tmp_path / "chance", 40, by_chance)["importance"]
    assert importance["shares"] == {}
    assert importance["statement"].startswith("no ranking for ECE: a surrogate of the suggestions")
