"""Plot the ECE on test against the ECE on select, with one dot per trial."""

from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.results import LadderResults

COLUMNS = ["select/ece", "test/ece"]


def draw(results: LadderResults) -> Drawing | None:
    """Draw the dots in one colour per rung, or return None without numbers on both splits."""
    trials = results.run.trials
    if not set(COLUMNS) <= set(trials) or trials[COLUMNS].dropna().empty:
        return None
    figure, axis = style.subplots(figsize=(style.TEXT_IN / 2, style.TEXT_IN / 2))
    for label, rows in trials.dropna(subset=COLUMNS).groupby("rung_label", sort=False):
        axis.plot(100 * rows[COLUMNS[0]], 100 * rows[COLUMNS[1]], "o", label=label)
    low, high = axis.get_xlim()
    axis.plot([low, high], [low, high], "--", color="grey", zorder=0)
    axis.set_xlabel("select ECE (%)")
    axis.set_ylabel("test ECE (%)")
    figure.legend(loc="outside lower center", ncols=2, fontsize=7)
    return figure


LADDER_FIGURES.register(
    Figure(
        name="select_test",
        title="ECE on select and on test",
        reading="One dot per trial. Above the dashed line, the ECE on test is larger.",
        draw=draw,
        absent="no finished trial has an ECE on both select and test",
    )
)
