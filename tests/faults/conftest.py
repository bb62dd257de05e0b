"""The undisturbed run, and the table of faults that is printed at the end."""

import time
from collections import defaultdict

import pytest
from tabulate import tabulate

from tests.faults.common import result, run, stop_all

OUTCOMES: dict[str, list[str]] = defaultdict(list)


@pytest.fixture(autouse=True)
def _nothing_left_running():
    """Stop the processes of a test that failed before it stopped them."""
    yield
    stop_all()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The run when nobody disturbs it: its result, and the seconds that it took."""
    out, started = tmp_path_factory.mktemp("reference") / "sweep", time.monotonic()
    code, output = run(out)
    assert code == 0, output
    return result(out), time.monotonic() - started


@pytest.fixture(scope="session")
def reference(undisturbed):
    return undisturbed[0]


@pytest.fixture(scope="session")
def length_s(undisturbed):
    return undisturbed[1]


@pytest.fixture
def note(request):
    """Note what became of a fault, for the table."""

    def add(fault: str, outcome: str) -> None:
        OUTCOMES[fault].append(outcome)

    return add


def pytest_terminal_summary(terminalreporter):
    if OUTCOMES:
        rows = [
            [fault, len(found), outcome, found.count(outcome)]
            for fault, found in OUTCOMES.items()
            for outcome in sorted(set(found))
        ]
        terminalreporter.write_line("")
        terminalreporter.write_line(tabulate(rows, ["fault", "tried", "outcome", "times"]))
