"""The same report again is told, and only figures of what changed are drawn anew."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.report import write_report
from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.page.figures import _paths
from analysis.page.kept import basis_of, kept
from analysis.search.report import write_search_report
from tests import fake_results
from tests.analysis.search.test_search_report import ECES, POINTS
from tests.drawing import figures
from tests.support import command_line, each
from tune_calib.results import contents
from tune_calib.results.columns import COLUMNS
from tune_calib.results.tables import read_table, write_table

FIGURES = {"tradeoff", "reliability", "confidence", "sparsity"}


@pytest.fixture(autouse=True)
def at_rest(monkeypatch, with_figures):
    """Nobody edits the program while it is tested."""
    monkeypatch.setattr(contents, "are_sources_current", lambda: True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of results with its report, and what that printed."""
    out = tmp_path_factory.mktemp("made") / "out"
    fake_results.write(out)
    with figures("svg"), pytest.MonkeyPatch.context() as patched:
        patched.setattr(contents, "are_sources_current", lambda: True)
        return out, write_report(out)


@pytest.fixture
def out(made, tmp_path):
    """A copy of it: what figures show does not depend on where they lie."""
    return Path(shutil.copytree(made[0], tmp_path / "out"))


def left(out: Path, *options: str) -> set[str]:
    """Figures that a further report would draw."""
    before = kept(out, basis_of(out, options))

    def is_held(name):
        figure = LADDER_FIGURES[name]
        return before.holds(figure, _paths(figure, out / "figures"))

    return {name for name in FIGURES if not is_held(name)}


def drawn_anew(out: Path, **options) -> set[str]:
    """Figures that a further report draws."""
    before = {path: path.stat().st_mtime_ns for path in out.glob("figures/*")}
    write_report(out, **options)
    after = {path: path.stat().st_mtime_ns for path in out.glob("figures/*")}
    return {path.stem for path in after if after[path] != before.get(path)}


def rewritten(out: Path, table: str) -> None:
    """Change a table by nothing but values."""
    for path in out.glob(f"{table}/*.parquet"):
        content = read_table(out, table, path.stem)
        name = [field.name for field in content.schema if pa.types.is_floating(field.type)][-1]
        column = content.schema.get_field_index(name)
        halved = pc.multiply(content[name], 0.5).cast(content.schema.field(column).type)
        write_table(out, table, path.stem, content.set_column(column, name, halved))


def written(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("*")}


def test_the_same_report_again_writes_nothing_and_says_the_same(made):
    out, told = made
    before = written(out)
    assert {path.stem for path in out.glob("figures/*")} == FIGURES
    assert write_report(out) == told
    assert written(out) == before


def test_the_same_search_report_again_writes_nothing_and_says_the_same(tmp_path):
    fake_results.write_search(tmp_path, POINTS, ECES, importance={"head.lr": 1.0})
    told, before = write_search_report(tmp_path), written(tmp_path)
    assert write_search_report(tmp_path) == told
    assert written(tmp_path) == before


@pytest.mark.parametrize(
    ("table", "figures"), [("curves", {"sparsity"}), ("bins", {"reliability", "confidence"})]
)
def test_a_table_that_changed_is_drawn_anew_and_nothing_else(table, figures, out):
    rewritten(out, table)
    assert left(out) == figures
    assert drawn_anew(out) == figures
    assert left(out) == set()


def test_an_option_of_the_table_draws_nothing_anew_and_changes_the_table(out):
    told, page = write_report(out), (out / "report.html").read_text()
    options = {"metrics": ["nll"], "regime": True}
    assert drawn_anew(out, **options) == set()
    assert write_report(out, **options) != told
    assert (out / "report.html").read_text() != page
    assert write_report(out) == told
    assert (out / "report.html").read_text() == page


@pytest.mark.parametrize("options", [["--test", "t"], ["--published", "fedlas/table1"]])
def test_an_option_that_figures_may_show_draws_all(options, out):
    assert left(out) == set()
    assert left(out, *options) == FIGURES


def another_row(out):
    (out / "trials" / "more.parquet").write_bytes(next(out.glob("trials/*")).read_bytes())


def linked(out):
    (out / "bins").rename(out.parent / "bins")
    (out / "bins").symlink_to(out.parent / "bins")


CHANGES = {
    "trials": another_row,
    "fewer trials": lambda out: next(out.glob("trials/*")).unlink(),
    "shifts": lambda out: shutil.copytree(out / "trials", out / "shifts"),
    "manifest": lambda out: (out / "sweep.json").write_text("{}"),
    "a file of nobody knows what": lambda out: (out / "own.json").touch(),
    "a folder elsewhere": linked,
    "no record": lambda out: (out / "report.json").unlink(),
    "a damaged record": lambda out: (out / "report.json").write_text("{"),
    "one of a later version": lambda out: (out / "report.json").write_text('{"version": 9}'),
    "no figure": lambda out: shutil.rmtree(out / "figures"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_all_figures_rest_on_draws_all_of_them(change, out):
    CHANGES[change](out)
    assert left(out) == FIGURES


UNTOUCHED = {
    "report": lambda out: write_report(out),
    "its page": lambda out: (out / "report.html").unlink(),
    "its tables": lambda out: shutil.rmtree(out / "tables"),
    "a lock": lambda out: (out / ".driver.lock").touch(),
    "progress": lambda out: (out / "progress.json").touch(),
    "the store": lambda out: ((out / "store").mkdir(), (out / "store" / "x").touch()),
    "logits": lambda out: ((out / "logits").mkdir(), (out / "logits" / "x.parquet").touch()),
}


@pytest.mark.parametrize("change", UNTOUCHED)
def test_what_no_figure_shows_draws_none(change, out):
    UNTOUCHED[change](out)
    assert left(out) == set()


def test_another_program_or_format_draws_all(out, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(style, "FORMATS", ("svg", "png"))
        assert left(out) == FIGURES
    with monkeypatch.context() as patched:
        patched.setattr(contents, "_of_sources", lambda: "another")
        assert left(out) == FIGURES
    # A program whose sources changed since it was loaded does not know which one it is.
    monkeypatch.setattr(contents, "are_sources_current", lambda: False)
    assert left(out) == FIGURES
    before = (out / "report.json").read_bytes()
    (out / "report.html").unlink()
    write_report(out)
    assert (out / "report.json").read_bytes() == before


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_text("half")])
def test_a_file_that_was_lost_or_harmed_is_made_again(harm, out):
    write_report(out)
    whole = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for name in ("figures/tradeoff.svg", "report.html", "tables/ladder.md"):
        harm(out / name)
    assert drawn_anew(out) == {"tradeoff"}
    assert {path: path.read_bytes() for path in whole} == whole


def test_of_a_figure_of_a_user_nobody_knows_what_it_reads(out):
    own = Figure("tradeoff", "T", "R.", lambda results: None, tables=())
    before = kept(out, basis_of(out, []))
    paths = _paths(LADDER_FIGURES["tradeoff"], out / "figures")
    assert before.holds(LADDER_FIGURES["tradeoff"], paths)
    assert not before.holds(own, paths)


@each("name", list(LADDER_FIGURES))
def test_a_figure_reads_no_table_but_those_that_it_names(name, made, tmp_path):
    out = shutil.copytree(made[0], tmp_path / "out")
    figure = LADDER_FIGURES[name]
    for table in set(COLUMNS) - {"trials", "shifts", *figure.tables}:
        (out / table).mkdir(exist_ok=True)
        for path in [*out.glob(f"{table}/*"), out / table / "x.parquet"]:
            path.write_text("not to be read")
    figure.draw(LadderResults(load(out)))


@each("name", sorted(FIGURES))
def test_options_of_the_table_change_no_figure(name, made, tmp_path):
    options = {"shows_regime": True, "shown": ("nll",), "shows_intervals": True}
    style.apply()
    drawing = LADDER_FIGURES[name].draw(LadderResults(replace(load(made[0]), **options)))
    for path in style.save(drawing, tmp_path, name):
        assert path.read_bytes() == (made[0] / "figures" / path.name).read_bytes()


def test_a_process_of_its_own_draws_the_same_and_tells_it_again_without_pandas(out):
    """Figures are drawn in copies of a process that has not loaded torch; here it is loaded."""
    drawn = {path.name: path.read_bytes() for path in out.glob("figures/*.svg")}
    shutil.rmtree(out / "figures")
    done = subprocess.run(command_line("report", out), capture_output=True, text=True, check=True)
    assert {path.name: path.read_bytes() for path in out.glob("figures/*.svg")} == drawn
    python, *words = command_line("report", out)
    command = [python, "-X", "importtime", *words]
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout
    imported = {line.rpartition("|")[2].strip() for line in again.stderr.splitlines()}
    assert "analysis.ladder.report" in imported
    assert not {"pandas", "matplotlib", "torch", "ray"} & imported
