"""What a shell offers behind the Tab key."""

from collections.abc import Callable, Iterable


def names(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completes a name, in a pipeline such as ``ls+mac_cal`` its last part.

    Args:
        known: gives the names, when a shell asks for them.
    """

    def complete(incomplete: str) -> list[str]:
        before, plus, last = incomplete.rpartition("+")
        return [f"{before}{plus}{name}" for name in known() if name.startswith(last)]

    return complete


def published_tables() -> Iterable[str]:
    """Names of the tables that papers print."""
    from analysis.published import describe_published

    return describe_published()
