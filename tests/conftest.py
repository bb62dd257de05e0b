"""Load what all tests share, except where a process only hands tests out to its workers."""

import pytest

pytest.register_assert_rewrite("tests.support")


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, which import the whole program."""
    hands_out = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if not hands_out:
        config.pluginmanager.import_plugin("tests.fixtures")


FAST_CASES = 3  # of a parametrised test


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most cases of parametrised tests to the slow suite: all but three, evenly spread.

    A test whose cases differ in kind, such as a vector for each method, is marked `every_case`.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(map(item.get_closest_marker, ("slow", "every_case"))):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test in cases.values():
        step = max((len(test) - 1) / (FAST_CASES - 1), 1)
        fast = {round(number * step) for number in range(FAST_CASES)}
        for position, item in enumerate(test):
            if position not in fast:
                item.add_marker(pytest.mark.slow)
