"""The undisturbed run."""

import time

import pytest

from tests.faults.common import result, run, stop_all


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
