"""The same report again is told, and only figures of what changed are drawn anew."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from analysis import style
from analysis.figure import Figure
from analysis.ladder.report import write_report
from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.search.report import write_search_report
from tests import fake_results
from tests.analysis.search.test_search_report import POINTS
from tests.support import command_line
from tune_calib import contents
from tune_calib.columns import COLUMNS
from tune_calib.registry import LADDER_FIGURES
from tune_calib.results import read_table, write_table


@pytest.fixture(autouse=True)
def at_rest(monkeypatch):
    """Nobody edits the program while it is tested."""
    monkeypatch.setattr(contents, "are_sources_current", lambda: True)


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path)
    write_report(tmp_path)
    return tmp_path


def times(out: Path, pattern: str) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob(pattern)}


def drawn_anew(out: Path, **options) -> set[str]:
    """Figures that a further report draws."""
    before = times(out, "figures/*")
    write_report(out, **options)
    after = times(out, "figures/*")
    return {Path(name).stem for name in after if after[name] != before.get(name)}


def all_figures(out: Path) -> set[str]:
    return {path.stem for path in out.glob("figures/*")}


def rewritten(out: Path, table: str) -> None:
    """Change a table by nothing but a value."""
    path = next(out.glob(f"{table}/*.parquet"))
    content = read_table(out, table, path.stem)
    numbers = [f.name for f in content.schema if pa.types.is_floating(f.type)]
    place = content.schema.get_field_index(numbers[-1])
    changed = pa.array([0.125] * content.num_rows, content.schema.field(place).type)
    write_table(out, table, path.stem, content.set_column(place, numbers[-1], changed))


def test_the_same_report_again_writes_nothing_and_says_the_same(out):
    told = write_report(out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert write_report(out) == told
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_the_same_search_report_again_writes_nothing_and_says_the_same(tmp_path):
    fake_results.write_search(tmp_path, POINTS, [0.06, 0.05])
    told = write_search_report(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert write_search_report(tmp_path) == told
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("table", "figures"),
    [("curves", {"sparsity"}), ("bins", {"reliability", "confidence"})],
)
def test_a_table_that_changed_is_drawn_anew_and_nothing_else(table, figures, out):
    rewritten(out, table)
    assert drawn_anew(out) == figures & all_figures(out)


@pytest.mark.parametrize(
    "options", [{"metrics": ["nll"]}, {"regime": True}, {"metrics": ["ece"], "regime": True}]
)
def test_an_option_of_the_table_draws_nothing_anew_and_changes_the_table(options, out):
    told, page = write_report(out), (out / "report.html").read_text()
    assert drawn_anew(out, **options) == set()
    assert write_report(out, **options) != told
    assert (out / "report.html").read_text() != page
    assert write_report(out) == told
    assert (out / "report.html").read_text() == page


CHANGES = {
    "trials": lambda out, monkeypatch: (out / "trials" / "more.parquet").write_bytes(
        next(out.glob("trials/*.parquet")).read_bytes()
    ),
    "manifest": lambda out, monkeypatch: (out / "sweep.json").write_text(
        (out / "sweep.json").read_text() + " "
    ),
    "program": lambda out, monkeypatch: monkeypatch.setattr(contents, "_of_sources", lambda: "b"),
    "lost": lambda out, monkeypatch: (out / "report.json").unlink(),
    "damaged": lambda out, monkeypatch: (out / "report.json").write_text("{"),
    "later": lambda out, monkeypatch: (out / "report.json").write_text('{"version": 9}'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_all_figures_rest_on_draws_all_of_them(change, out, monkeypatch):
    CHANGES[change](out, monkeypatch)
    assert drawn_anew(out) == all_figures(out)
    assert drawn_anew(out) == set()


def test_another_format_is_drawn(out, monkeypatch):
    monkeypatch.setattr(style, "FORMATS", ("svg", "png"))
    assert drawn_anew(out) == all_figures(out)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_text("half")])
def test_a_file_that_was_lost_or_harmed_is_made_again(harm, out):
    whole = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    harm(out / "figures" / "tradeoff.svg")
    assert drawn_anew(out) == {"tradeoff"}
    for name in ("report.html", "tables/ladder.md"):
        harm(out / name)
        assert drawn_anew(out) == set()
    assert {path: path.read_bytes() for path in whole} == whole


def test_sources_that_changed_under_a_running_program_are_not_taken_for_its_own(out, monkeypatch):
    monkeypatch.setattr(contents, "are_sources_current", lambda: False)
    before = (out / "report.json").read_bytes()
    assert drawn_anew(out) == all_figures(out)
    assert (out / "report.json").read_bytes() == before


def test_a_figure_of_a_user_is_drawn_each_time_there_is_something_new(out, monkeypatch):
    list(LADDER_FIGURES)
    monkeypatch.setattr(LADDER_FIGURES, "_records", dict(LADDER_FIGURES._records))
    draw = LADDER_FIGURES["tradeoff"].draw
    LADDER_FIGURES.register(Figure("own", "T", "R.", lambda results: draw(results)))
    (out / "report.html").unlink()
    assert drawn_anew(out) == {"own"}
    (out / "report.html").unlink()
    assert drawn_anew(out) == {"own"}


@pytest.mark.parametrize("name", LADDER_FIGURES)
def test_a_figure_reads_no_table_but_those_that_it_names(name, tmp_path):
    figure = LADDER_FIGURES[name]
    fake_results.write(tmp_path)
    for table in set(COLUMNS) - {"trials", "shifts", *figure.tables}:
        (tmp_path / table).mkdir(exist_ok=True)
        for path in [*tmp_path.glob(f"{table}/*"), tmp_path / table / "x.parquet"]:
            path.write_text("not to be read")
    figure.draw(LadderResults(load(tmp_path)))


@pytest.mark.parametrize("name", LADDER_FIGURES)
def test_options_of_the_table_change_no_figure(name, tmp_path):
    fake_results.write(tmp_path)
    sweep, figure = load(tmp_path), LADDER_FIGURES[name]
    style.apply()
    told = []
    for options in ({}, {"shows_regime": True, "shown": ("nll",), "shows_intervals": True}):
        drawing = figure.draw(LadderResults(replace(sweep, **options)))
        if drawing is not None:
            (path,) = style.save(drawing, tmp_path / str(len(options)), name)
            told.append(path.read_bytes())
    assert told[1:] == told[:1] or told == []


def test_a_process_of_its_own_draws_the_same_and_tells_it_again_without_pandas(out, tmp_path):
    """Figures are drawn in copies of a process that has not loaded torch; here it is loaded."""
    drawn = {path.name: path.read_bytes() for path in out.glob("figures/*.svg")}
    for path in out.glob("figures/*"):
        path.unlink()
    done = subprocess.run(command_line("report", out), capture_output=True, text=True, check=True)
    assert {path.name: path.read_bytes() for path in out.glob("figures/*.svg")} == drawn
    program = (
        "import sys; from pathlib import Path; from analysis.ladder.report import write_report; "
        f"print(write_report(Path({str(out)!r}))); "
        "sys.exit(any(name in sys.modules for name in ('pandas', 'matplotlib', 'torch', 'ray')))"
    )
    again = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
