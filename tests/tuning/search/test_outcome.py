"""What the driver stores of a search: the space, every suggestion, the choice, importance."""

import json

import pytest

from tests.tuning.search.support import ECE, GIVEN, row, study_in
from tune_calib.spec.names import SEARCH_OUTCOME
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.search.definition import Objective, SearchDefinition, SuggestionResult
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
