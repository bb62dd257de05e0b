"""Test that the examples of the gallery run, and print what their pages show."""

import re
import resource
from pathlib import Path

import pytest

from docs.gallery import EXAMPLES, ROOT, recording_path, run_example
from tune_calib.results.tables import read_table

PAGES = ROOT / "docs/pages/gallery"
LONGEST_S = 60


def mask_results(text: str) -> list[str]:
    """Return the words of a text without what differs by processor: numbers, hashes, choices."""
    differing = r"\{[^}]*\}|\b[0-9a-f]{16}\b|-?\d[\d.]*(e-\d+)?|NaN|linear|bottleneck|True|False"
    return re.sub(differing, "#", text).split()


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def check_example(name: str, folder: Path) -> None:
    """Check that an example prints what its page shows, in less than a minute of a processor."""
    started_s = cpu_seconds()
    printed = run_example(name, folder)
    assert cpu_seconds() - started_s < LONGEST_S  # not of the clock, which other tests slow down
    recorded = recording_path(name).read_text("utf-8")
    assert mask_results(printed) == mask_results(recorded), "run make examples"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted({*EXAMPLES} - {"own_tuner"}))
def test_example_prints_what_its_page_shows(name, tmp_path):
    check_example(name, tmp_path)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(300)
def test_tuner_prints_what_its_page_shows_and_trains_its_heads(tmp_path):
    check_example("own_tuner", tmp_path)
    rows = read_table(tmp_path / "runs/own-tuner/results", "trials").to_pylist()
    assert len(rows) == 3
    assert min(row["select/accuracy"] for row in rows) > 0.6


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_short_and_on_one_page_with_its_output(name):
    assert len((ROOT / f"docs/examples/{name}.py").read_text("utf-8").splitlines()) <= 80
    texts = [path.read_text("utf-8") for path in PAGES.glob("*.md")]
    (page,) = [text for text in texts if f"<!-- example: {name}.py -->" in text]
    assert f"<!-- recording: {name}.txt -->" in page
    assert f"python docs/examples/{name}.py" in page
