"""The rule that stops a search: the same number whatever was killed, hidden or asked for."""

import time
from dataclasses import replace

import pytest
from optuna.terminator import RegretBoundEvaluator

from tests.support import here
from tests.tuning.ray.test_in_process import wrap_steps
from tests.tuning.search.support import ECE, GIVEN
from tune_calib.results.manifests import SearchOutcome
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.search.definition import SearchDefinition, SuggestionResult
from tune_calib.tuning.search.stop import EVERY, LEAST, POOLED
from tune_calib.tuning.search.study import SearchStudy

FIXED = ["head.start=continued", "head.loss_reduction=mean", "head.batch_size=32"]
PAIRED = Seeds((0, 1), (0, 1), is_paired=True)
DEFINITION = SearchDefinition("mac_cal", ResolvedRequest(GIVEN, PAIRED), ECE, "random", stop=True)


def open_study(out, definition=DEFINITION):
    out.mkdir(exist_ok=True)
    return SearchStudy(definition, out)


def extend(study, length, variance, lag=0, drop=lambda number: 0.0):
    """Draw and settle suggestions up to some length, and return how many there are."""
    for number in range(len(study.states()), length):
        drawn = study.suggestions([number], max(0, number - lag))
        for suggestion in drawn:
            value = abs(suggestion.params.get("head.q0", 0.5) - 0.6)
            result = SuggestionResult("done", (value,), drop(number), variance=variance(number))
            study.write_result(suggestion.number, result)
    return len(study.states())


def test_a_search_stops_at_the_first_check_if_the_noise_is_large_and_never_without_it(tmp_path):
    loud, silent = open_study(tmp_path / "loud"), open_study(tmp_path / "silent")
    assert extend(loud, 40, lambda number: 25.0) == LEAST
    assert loud.stop.error == pytest.approx((25.0 / 2) ** 0.5)
    assert 0 < loud.stop.bound < loud.stop.error
    values = [trial.values[0] for trial in loud.suggestions(range(LEAST))]
    assert values[loud.stop.best] == min(values)
    assert extend(silent, 40, lambda number: 0.0) == 40
    assert silent.stop is None


def test_a_stop_is_kept_by_another_process_and_by_a_longer_search(tmp_path):
    extend(open_study(tmp_path / "out"), 40, lambda number: 25.0)
    study = open_study(tmp_path / "out")
    assert study.planned(400) == LEAST
    assert study.suggestions(range(30)) == study.suggestions(range(LEAST))
    study.retry("done")  # a retry is planned besides
    assert study.planned(400) == 2 * LEAST


def test_only_results_that_a_suggestion_can_see_stop_a_search(tmp_path):
    """The noise grows with suggestion 20; it is checked every few suggestions."""
    counts = {}
    for lag in (0, 8):
        study = open_study(tmp_path / str(lag))
        counts[lag] = extend(study, 48, lambda number: 25.0 * (number >= 20), lag=lag)
        cut = open_study(tmp_path / f"{lag}-cut")
        for length in (3, 22, 24, 31, 48):  # killed and opened again
            assert extend(cut, length, lambda number: 25.0 * (number >= 20), lag=lag) <= length
            cut = open_study(tmp_path / f"{lag}-cut")
        assert (cut.stop, len(cut.states())) == (study.stop, counts[lag])
    assert counts[0] <= counts[8]
    assert all(count % EVERY == 0 for count in counts.values())


def test_suggestions_beyond_the_guard_do_not_count(tmp_path):
    study = open_study(tmp_path / "out")
    within = POOLED - 1
    count = extend(study, 32, lambda number: 25.0, drop=lambda number: 0.5 * (number >= within))
    assert (count, study.stop) == (32, None)


def test_a_search_without_the_rule_keeps_its_identity():
    plain = replace(DEFINITION, stop=False)
    assert "stop" not in plain.record.plain()
    assert plain.identity != DEFINITION.identity


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--stop compares gains with the noise between seeds"),
        (["--seeds", 2, "--sampler", "grid"], "--stop ends a search before its last suggestion"),
        (["--seeds", 2, "--metric", "ece", "--metric", "nll"], "name one --metric"),
    ],
)
def test_a_search_to_which_the_rule_does_not_apply_is_refused(options, message, refusal, tmp_path):
    words = ["search", "mac_cal", "--stop", *options, "--address", "none"]
    assert message in refusal(*words, "--out", tmp_path / "out")


@pytest.mark.slow
def test_a_killed_search_stops_where_a_whole_one_does_and_says_why(tmp_path, monkeypatch):
    command = ["search", "retrain", "--epochs", 6, "--head-epochs", 1, "--guard", 1.0]
    for setting in ("network.augment=none", "head.augment=none", *FIXED):
        command += ["--set", setting]
    command += ["--seeds", 2, "--trials", 64, "--stop", "--address", "none"]
    command += ["--store", tmp_path / "store"]
    # Smaller, since the true bound exceeds the noise for more suggestions than a test has.
    bound = RegretBoundEvaluator.evaluate
    monkeypatch.setattr(RegretBoundEvaluator, "evaluate", lambda *named: bound(*named) / 20)
    whole = here(*command, "--out", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    outcome = SearchOutcome.read(tmp_path / "whole")
    stopped = outcome.stop.length
    assert LEAST <= stopped == len(outcome.suggestions) < 64
    printed = " ".join(whole.stdout.split())
    assert f"Complete: all {stopped} planned suggestions ended (n = {stopped}). 64 were" in printed
    assert "64 were requested; it stopped, since" in (tmp_path / "whole/report.html").read_text()
    assert "nothing is left" in here("resume", tmp_path / "whole", "--trials", 99).stderr
    assert "it stopped after" in here("status", tmp_path / "whole").stdout
    cut, now, passed = tmp_path / "cut", time.monotonic, [0]

    def take_an_hour(step, worker):
        passed[0] += 1
        return step(worker)

    wrap_steps(monkeypatch, take_an_hour)
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3600 * passed[0])
    for hours in (16.5, 2.5, 60.5):
        passed[0] = 0
        last = here(*command, "--out", cut, "--max-hours", hours)
    assert last.returncode == 0, last.stderr
    again = SearchOutcome.read(cut)
    assert (again.stop, again.suggestions) == (outcome.stop, outcome.suggestions)
