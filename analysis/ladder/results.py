"""The results that tables and figures of a ladder's report share, computed once."""

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
    """The results of a ladder or comparison, read and computed on first use.

    Attributes:
        sweep: the contents of its folder.
        test: paired test of the methods against the first, of ``PAIRED_TESTS``.
    """

    sweep: Sweep
    test: str = PAIRED_TESTS[0]

    @cached_property
    def statistics(self) -> pd.DataFrame:
        """Statistics of single samples, see ``samples.sample_statistics``."""
        return sample_statistics(self.sweep.out)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Intervals over the test samples, see ``resampling.over_samples``."""
        return over_samples(self.sweep)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The paired test, then Friedman's; none for a ladder, whose steps are no rivals."""
        return for_report(self.sweep, self.test)

    @property
    def friedman(self) -> Friedman | None:
        """Friedman's test of the methods of a comparison."""
        return next((v.friedman for v in self.verdicts if v.friedman is not None), None)

    @property
    def binned(self) -> list[str]:
        """Hashes of the trials that have bins on test."""
        bins = self.sweep.bins
        return list(bins.loc[bins["split"] == "test", "spec_hash"].unique())
