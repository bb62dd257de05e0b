"""What the report of a ladder is made of: its results, and what is computed of them once."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from analysis.compare.friedman import Friedman
from analysis.compare.paired import PAIRED_TESTS
from analysis.compare.resampling import over_samples
from analysis.compare.significance import Verdict, for_report
from analysis.ladder.samples import sample_statistics
from analysis.load import Sweep


@dataclass(frozen=True, eq=False)
class LadderResults:
    """A ladder or comparison, as tables and figures of its report see it.

    Attributes:
        sweep: what its folder holds.
        test: paired test of methods side by side against the first, of ``PAIRED_TESTS``.
    """

    sweep: Sweep
    test: str = PAIRED_TESTS[0]

    # Read and computed when first asked for, since a single figure needs little of it.
    @cached_property
    def statistics(self) -> pd.DataFrame:
        """Of single samples, as of ``samples.sample_statistics``."""
        return sample_statistics(self.sweep.out)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Over the test samples, as of ``resampling.over_samples``."""
        return over_samples(self.sweep)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The paired test, then Friedman's; none of a ladder, whose steps are no rivals."""
        return for_report(self.sweep, self.test)

    @property
    def friedman(self) -> Friedman | None:
        """Friedman's test of methods side by side."""
        return next((v.friedman for v in self.verdicts if v.friedman is not None), None)

    @property
    def binned(self) -> list[str]:
        """Hashes of the trials that have bins on test."""
        bins = self.sweep.bins
        return list(bins.loc[bins["split"] == "test", "spec_hash"].unique())
