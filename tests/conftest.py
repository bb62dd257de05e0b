"""Load what all tests share, except where a process only hands tests out to its workers."""

import pytest

pytest.register_assert_rewrite("tests.support")


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, which import the whole program."""
    hands_out = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if not hands_out:
        config.pluginmanager.import_plugin("tests.fixtures")
