"""The same report again is told at once; of anything that changed all of it is made anew."""

import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from analysis.report import write_report, write_search_report
from tests import fake_results
from tests.analysis.search.test_search_report import ECES, POINTS
from tests.drawing import figures
from tests.support import command_line, sample
from tune_calib.results import digests
from tune_calib.results.tables import read_table, write_table

FIGURES = {"tradeoff", "reliability", "confidence", "sparsity"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of results with its report, and what that printed."""
    out = tmp_path_factory.mktemp("made") / "out"
    fake_results.write(out)
    with figures("svg"):
        return out, write_report(out)


@pytest.fixture
def out(made, tmp_path):
    """A copy of it: what figures show does not depend on where they lie."""
    return Path(shutil.copytree(made[0], tmp_path / "out"))


def is_made_anew(out: Path, **options) -> bool:
    """Whether a further report is written."""
    (out / "report.html").touch()
    before = (out / "report.html").stat().st_mtime_ns
    write_report(out, **options)
    return (out / "report.html").stat().st_mtime_ns != before


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


def test_an_unchanged_report_writes_nothing_and_prints_the_same(made):
    out, told = made
    before = written(out)
    assert {path.stem for path in out.glob("figures/*")} == FIGURES
    assert write_report(out) == told
    assert written(out) == before


def test_an_unchanged_search_report_writes_nothing_and_prints_the_same(tmp_path):
    fake_results.write_search(tmp_path, POINTS, ECES, importance={"head.lr": 1.0})
    report, first_files = write_search_report(tmp_path), written(tmp_path)
    assert write_search_report(tmp_path) == report
    assert written(tmp_path) == first_files


@pytest.mark.parametrize("table", sample(["curves", "bins"], 1))
def test_a_table_that_changed_is_in_the_next_report(table, out):
    rewritten(out, table)
    assert is_made_anew(out)
    assert not is_made_anew(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    sample([{"metrics": ["nll"]}, {"regime": True}, {"published": "maccal/table5"}], 1),
)
def test_options_change_a_report_and_restore_it(options, out):
    report, page = write_report(out), (out / "report.html").read_text()
    assert is_made_anew(out, **options)
    assert (out / "report.html").read_text() != page
    assert write_report(out) == report
    assert (out / "report.html").read_text() == page


def another_row(out):
    (out / "trials" / "more.parquet").write_bytes(next(out.glob("trials/*")).read_bytes())


def linked(out):
    (out / "bins").rename(out.parent / "bins")
    (out / "bins").symlink_to(out.parent / "bins")


CHANGES = {
    "trials": another_row,
    "fewer trials": lambda out: next(out.glob("trials/*")).unlink(),
    "shifts": lambda out: fake_results.add_shifts(out, ["ood/svhn"]),
    "manifest": lambda out: (out / "sweep.json").write_text(f" {(out / 'sweep.json').read_text()}"),
    "a file of nobody knows what": lambda out: (out / "own.json").touch(),
    "a folder elsewhere": linked,
    "no record": lambda out: (out / "report.json").unlink(),
    "a damaged record": lambda out: (out / "report.json").write_text("{"),
    "an edited record": lambda out: (out / "report.json").write_text(
        (out / "report.json").read_text().replace("ECE", "ece", 1)
    ),
    "one of a later version": lambda out: (out / "report.json").write_text('{"version": 9}'),
    "its page": lambda out: (out / "report.html").write_text("half"),
    "its tables": lambda out: shutil.rmtree(out / "tables"),
    "no figure": lambda out: shutil.rmtree(out / "figures"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", sample(CHANGES, 4))
def test_a_change_of_its_inputs_rewrites_a_report(change, made, tmp_path):
    out = Path(shutil.copytree(made[0], tmp_path / "out"))
    CHANGES[change](out)
    assert is_made_anew(out)


UNTOUCHED = {
    "a lock": lambda out: (out / ".driver.lock").touch(),
    "progress": lambda out: (out / "progress.json").touch(),
    "the store": lambda out: ((out / "store").mkdir(), (out / "store" / "x").touch()),
}


@pytest.mark.parametrize("change", sample(UNTOUCHED, 1))
def test_a_change_of_other_files_does_not_rewrite_a_report(change, made, tmp_path):
    out = Path(shutil.copytree(made[0], tmp_path / "out"))
    write_report(out)
    UNTOUCHED[change](out)
    assert not is_made_anew(out)


@pytest.mark.slow
def test_another_version_of_the_program_rewrites_a_report(out, monkeypatch):
    write_report(out)
    with monkeypatch.context() as patched:
        patched.setattr(digests, "digest_program", lambda: "another")
        assert is_made_anew(out)
    assert is_made_anew(out)


@pytest.mark.slow
@pytest.mark.parametrize("harm", sample([Path.unlink, lambda path: path.write_text("half")], 1))
def test_a_file_that_was_lost_or_harmed_is_made_again(harm, made, tmp_path):
    out = Path(shutil.copytree(made[0], tmp_path / "out"))
    with figures("svg", names=("tradeoff",)):
        write_report(out)
    whole = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for name in ("figures/tradeoff.svg", "report.html", "tables/ladder.md"):
        harm(out / name)
    with figures("svg", names=("tradeoff",)):
        write_report(out)
    assert {path: path.read_bytes() for path in whole} == whole


@pytest.mark.slow
def test_a_fresh_process_draws_equal_figures_and_repeats_the_report_without_pandas(out):
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
    assert "analysis.report" in imported
    assert not {"pandas", "matplotlib", "torch", "ray"} & imported
