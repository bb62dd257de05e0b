"""Limits of the hours of a search: what ends, and what continues."""

import time

import pytest

import tune_calib
from tests.support import QUICK, SETTINGS, here, rows
from tests.tuning.ray.test_in_process import wrap_steps
from tune_calib.results.manifests import SearchOutcome

pytestmark = pytest.mark.slow

SEARCH = ["search", "mac_cal", *QUICK, "--trials", 6, "--population", 2, "--address", "none"]


@pytest.fixture
def slow_steps(monkeypatch):
    """Let each step of a worker, or each epoch within one, take two hours."""
    passed, now = [0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 7200 * passed[0])

    def take_two_hours(step, worker):
        passed[0] += 1
        return step(worker)

    wrap_steps(monkeypatch, take_two_hours)
    return passed


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The search without limits."""
    out = tmp_path_factory.mktemp("limits") / "whole"
    assert here(*SEARCH, "--out", out).returncode == 0
    return out


def values(out):
    """Return the metrics of each trial by its hash and its suggestion."""
    metrics = ("select/ece", "select/accuracy", "status")
    return {(r["spec_hash"], r["rung"]): [r[name] for name in metrics] for r in rows(out)}


def test_no_suggestion_starts_after_the_hours_and_resume_equals_a_whole_search(
    whole, tmp_path, slow_steps
):
    out = tmp_path / "out"
    stopped = here(*SEARCH, "--out", out, "--max-hours", 7)  # three steps are of the baseline
    assert stopped.returncode == 3, stopped.stderr
    line = "the time limit of 7 h is over: 4 of 6 suggestions left"
    assert f"{line}; continue with: tune-calib resume {out}\n" in stopped.stderr
    assert "INCOMPLETE: of 6 planned suggestions, 2 done, 4 missing" in stopped.stdout
    assert f"{line[0].upper()}{line[1:]}." in stopped.stdout
    assert f"{line[0].upper()}{line[1:]}." in (out / "report.html").read_text()
    count, slow_steps[0] = len(rows(out)), 0
    again = here("resume", out, "--max-hours", 1)  # over when the first job ends
    assert again.returncode == 3
    assert "the time limit of 1 h is over: " in again.stderr
    assert len(rows(out)) > count
    assert here("resume", out).returncode == 0
    assert SearchOutcome.read(out).stopped == ""
    assert values(out) == values(whole)


def test_a_search_whose_time_is_over_before_its_baseline_has_no_page_and_continues(
    tmp_path, slow_steps
):
    out = tmp_path / "out"
    command = [*SEARCH, "--seeds", 2, "--trials", 1, "--out", out]
    stopped = here(*command, "--max-hours", 1)
    assert (stopped.returncode, stopped.stdout) == (3, "")
    assert "1 of 1 suggestion left; continue with" in stopped.stderr
    assert [row["rung"] for row in rows(out)] == [-1]
    with pytest.warns(UserWarning, match="1 of 1 suggestion left; the same call continues"):
        results = tune_calib.search(
            "mac_cal", epochs=2, head_epochs=2, set=SETTINGS, seeds=2, trials=1, population=2,
            address="none", out=out, max_hours=1e-9,
        )  # fmt: skip
    assert "is over" in results.stopped
    assert here("resume", out).returncode == 0
