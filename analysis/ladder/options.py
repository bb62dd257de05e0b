"""How a report of a ladder is asked for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """How a report of a ladder is asked for.

    Attributes:
        published: a published table to put beside it; None for the one that its ladder follows.
        test: paired test of methods side by side; None for the usual one.
        regime: columns of the regime in the table.
        metrics: of the table; the usual ones if there are none.
        intervals: of the means over the test samples instead of the spread over seeds.
    """

    published: str | None = None
    test: str | None = None
    regime: bool = False
    metrics: tuple[str, ...] = ()
    intervals: bool = False

    def words(self) -> list[str]:
        """Return them as words of the command line."""
        metrics = [word for name in self.metrics for word in ("--metric", name)]
        return [
            *([] if self.published is None else ["--published", self.published]),
            *([] if self.test is None else ["--test", self.test]),
            *["--regime"] * self.regime, *metrics, *["--intervals"] * self.intervals,
        ]  # fmt: skip
