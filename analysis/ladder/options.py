"""The options of a ladder's report, in a module that needs no pandas."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The options of a ladder's report; ``write_report`` describes them."""

    published: str | None = None
    test: str | None = None
    regime: bool = False
    metrics: tuple[str, ...] = ()
    intervals: bool = False

    def words(self) -> list[str]:
        """Return the options as words of the command line."""
        metrics = [word for name in self.metrics for word in ("--metric", name)]
        return [
            *([] if self.published is None else ["--published", self.published]),
            *([] if self.test is None else ["--test", self.test]),
            *["--regime"] * self.regime, *metrics, *["--intervals"] * self.intervals,
        ]  # fmt: skip
