"""The undisturbed sweep, and the table of faults that is printed at the end."""

from collections import defaultdict

import pytest
from tabulate import tabulate

from tests.faults.common import result, run

OUTCOMES: dict[str, list[str]] = defaultdict(list)


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """Result of the sweep when nobody disturbs it."""
    out = tmp_path_factory.mktemp("reference") / "sweep"
    code, said = run(out)
    assert code == 0, said
    return result(out)


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
