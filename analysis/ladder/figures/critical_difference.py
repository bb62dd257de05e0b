"""The mean ranks of methods side by side, and which of them are not told apart."""

from matplotlib.figure import Figure as Drawing

from analysis.compare.diagram import draw_critical_difference
from analysis.compare.significance_tables import friedman_sentence
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.results import LadderResults


def _draw(results: LadderResults) -> Drawing | None:
    return draw_critical_difference(results.friedman)


def _caption(results: LadderResults) -> str:
    test = results.friedman
    if test is None:
        return ""
    return f"{friedman_sentence(test)} Complete blocks: {test.blocks}; a block is a {test.unit}."


def _absent(results: LadderResults) -> str:
    return "" if results.friedman is None else results.friedman.statement


LADDER_FIGURES.register(
    Figure(
        name="critical_difference",
        title="Mean ranks of the methods",
        reading=(
            "Friedman's test over the blocks; bars join methods that Nemenyi's does not tell apart."
        ),
        draw=_draw,
        caption=_caption,
        absent=_absent,
        position=100,
    )
)
