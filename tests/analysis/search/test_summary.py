"""The summary of a search: epochs that count once, and crashes by kind."""

import json

import pandas as pd
import pytest

from analysis.search.load import SearchResults
from analysis.search.summary import count_epochs, summarise
from tests.tuning.search.support import ECE, GIVEN, row, study_in
from tune_calib.results.manifests import SearchOutcome
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.search.definition import SearchDefinition, SuggestionResult
from tune_calib.tuning.search.outcome import write_outcome
from tune_calib.tuning.search.state import SearchState


def trained(spec_hash, network, head=None, status="done", epoch=1, message=None, rung=0):
    """A row whose network is named after its epochs, as ``a30``."""
    return {
        "spec_hash": spec_hash,
        "rung": rung,
        "network_id": network,
        "network": json.dumps({"epochs": int(network[1:])}),
        "head": head and json.dumps({"epochs": 10, "name": head}),
        "status": status,
        "epoch": epoch,
        "message": message,
    }


def results(rows, suggestions, **of_outcome):
    """Results of suggestions, each a status and its spec hashes."""
    records = [
        {"number": number, "status": status, "specs": specs, "crashes": crashes}
        for number, (status, specs, crashes) in enumerate(suggestions)
    ]
    entries = [{"point": {}, "drop": None, "is_within": False, **record} for record in records]
    importance = {"done": 0, "top": 0, "shares": {}, "statement": ""}
    outcome = SearchOutcome.model_validate(
        {
            "version": 1, "asked": len(entries), "planned": len(entries), "metrics": ["ece"],
            "baseline": {}, "settings": {}, "defaults": {}, "published": [], "front": [],
            "suggestions": entries, "chosen": None, "importance": importance, **of_outcome,
        }
    )  # fmt: skip
    return SearchResults(None, None, outcome, pd.DataFrame(rows))


def test_epochs_of_heads_do_not_include_their_common_network():
    rows = [
        trained("base", "a30", rung=-1),
        trained("a", "a30", "first"),
        trained("b", "a30", "second", "diverged", epoch=4),
        trained("transform", "a30", "first", rung=1),  # the same head behind a transform
    ]
    suggestions = [("done", ["a"], []), ("diverged", ["b"], []), ("done", ["transform"], [])]
    assert count_epochs(results(rows, suggestions)) == (14, 30)


def test_epochs_of_searched_networks_count_once_and_a_diverged_one_as_far_as_it_came():
    rows = [
        trained("base", "a30", rung=-1),
        trained("a", "b20", "x"),
        trained("b", "b20", "y"),
        trained("c", "c20", "x", "diverged", epoch=3, message="network: the loss is not finite"),
    ]
    search = results(rows, [("done", ["a", "b"], []), ("diverged", ["c"], [])])
    assert count_epochs(search) == (20 + 10 + 10 + 3, 80)
    assert "trained 43 epochs, 46% fewer than" in " ".join(summarise(search))


def test_a_posthoc_method_trains_nothing():
    search = results([trained("base", "a30", rung=-1), trained("a", "a30")], [("done", ["a"], [])])
    assert count_epochs(search) == (0, 0)
    assert summarise(search)[1] == "Its suggestions trained 0 epochs."


def test_crashes_are_counted_by_kind_the_most_frequent_first():
    memory = "OutOfMemoryError: tried to allocate {} MiB at 0x{:x}"
    suggestions = [
        ("crashed", ["a", "b"], ["KeyError: 'x'", memory.format(20, 254)]),
        ("crashed", ["c"], [memory.format(1.5, 3)]),
        (
            "crashed",
            ["d", "e", "f", "g"],
            [memory.format(n, n) for n in range(3)] + ["KeyError: 'x'"],
        ),
    ]
    lines = summarise(results([trained("base", "a30", rung=-1)], suggestions))
    assert lines[2:] == [
        f"5 trials crashed: {memory.format(20, 254)}.",
        "2 trials crashed: KeyError: 'x'.",
    ]


@pytest.fixture
def crashed(tmp_path):
    """A search whose second suggestion crashed, as its driver leaves it."""
    definition = SearchDefinition("mac_cal", ResolvedRequest(GIVEN), ECE, "random")
    state = SearchState(tmp_path, definition, study_in(tmp_path, "random"), 2)
    for baseline in state.candidates.baseline():
        state.rows[baseline.spec.hash] = row(ece=0.1, accuracy=0.9)
    state.results[0] = SuggestionResult("done", (0.2,), 0.0)
    state.results[1] = SuggestionResult("crashed")
    for number, result in state.results.items():
        state.study.write_result(state.study.suggestion(number).number, result)
    (spec_hash,) = state.hashes(state.study.suggestion(1))
    state.crashed, state.errors = {spec_hash: "heads-1"}, {"heads-1": "ValueError: odd"}
    return state


def test_a_report_keeps_why_the_last_driver_ended_and_a_driver_does_not(crashed):
    location = RunLocation(crashed.out, crashed.out / "store")
    write_outcome(crashed, location, stopped="the time limit of 1 h is over")
    crashed.crashed.clear()  # another process knows neither
    for stopped in (None, ""):
        outcome = SearchOutcome.read(crashed.out)
        assert [entry.crashes for entry in outcome.suggestions] == [[], ["ValueError: odd"]]
        assert outcome.stopped == "the time limit of 1 h is over"
        write_outcome(crashed, location, stopped)
    assert SearchOutcome.read(crashed.out).stopped == ""
    assert "crashes" not in (crashed.out / "outcome.json").read_text().split("done")[0]
