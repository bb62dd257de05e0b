"""The page over an experiment file: each entry with its state, its numbers and its page."""

import json
import re

import pytest

from analysis.experiment_file.overview import write_overview
from analysis.report import write_search_report
from tests import fake_results
from tests.support import Reader
from tune_calib.files.documents import seal
from tune_calib.results.manifests import VERSION, ReadRecord, SearchEvaluated
from tune_calib.results.selection import BASELINE, CHOSEN, DEFAULTS, EVALUATION
from tune_calib.results.tables import read_table, write_results

POINTS = [{**fake_results.DEFAULTS, "head.lr": rate} for rate in (0.1, 0.05, 0.02)]


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path / "ladder")
    (tmp_path / "ladder" / "report.html").write_text("its page")
    fake_results.write_search(tmp_path / "search", POINTS, [0.07, 0.06, 0.04])
    return tmp_path


def page(out, *names):
    return write_overview(out, [out / name for name in names]).read_text()


def test_every_entry_is_listed_and_linked_to_its_page(out):
    text = page(out, "ladder", "search")
    read = Reader(text)
    assert read.open == []
    links = [link for link in read.values("href") if link[0] not in "#d"]
    assert set(links) == {"ladder/report.html"}  # the search has no page yet
    assert "Complete: every entry" in text
    for label in fake_results.LABELS:
        assert f">{label}</th>" in text
    assert "chosen" in text
    assert "not evaluated" in text


def test_the_page_shows_other_entries_despite_missing_or_damaged_files(out):
    (out / "ladder" / "trials" / "2-1.parquet").unlink()
    (out / "search" / "outcome.json").write_text("{")
    text = page(out, "ladder", "search", "nothing")
    assert "Not every entry has all its numbers" in text
    assert "ladder: + two: 1 of 3 missing" in text
    assert "search: " in text
    assert "nothing contains no sweep.json" in text
    assert ">vanilla</th>" in text


def evaluated(folder, chosen):
    """A look at test of a search, as ``evaluate`` leaves it."""
    fake_results.write(folder / EVALUATION, seeds=2, published=False)
    manifest = json.loads((folder / EVALUATION / "sweep.json").read_text())
    for rung, label in zip(manifest["rungs"], (BASELINE, DEFAULTS, CHOSEN, "x"), strict=True):
        rung["label"] = label
    (folder / EVALUATION / "sweep.json").write_bytes(seal(manifest))
    for path in (folder / EVALUATION / "trials").iterdir():
        (row,) = read_table(folder / EVALUATION, "trials", path.stem).to_pylist()
        label = manifest["rungs"][row["rung"]]["label"]
        select = {"select/ece": 0.05, "select/accuracy": 0.9}
        row = {**row, **select, "rung_label": label, "test/ece": 0.09, "test/accuracy": 0.9}
        write_results(folder / EVALUATION, path.stem, {"trials": [row]})
    told = {"trial": chosen, "settings": {}, "rule": "least ECE", "reads": [ReadRecord(seeds=2)]}
    SearchEvaluated(version=VERSION, **told).write(folder)


def test_the_page_of_a_search_links_to_its_evaluation_on_test(out):
    search = out / "search"
    write_search_report(search)
    before = (search / "report.html").read_text()
    assert 'id="on-test"' not in before
    assert "evaluation/report.html" not in before
    evaluated(search, 2)
    write_search_report(search)
    text = (search / "report.html").read_text()
    assert 'href="evaluation/report.html"' in text
    assert "Test was read once, with 2 fresh seeds." in text
    # The choice had an ECE of 4 % on select: on test, with 9 %, it is 5 points worse.
    row = text[text.index('id="on-test-rows"') :]
    row = row[row.index(">chosen</th>") :][:700]
    assert ">4.00 %</td>" in row
    assert ">9.00 % ± 0.00 %</td>" in row
    assert row.count(">5.00 %</td>") == 2  # fresh seeds on select, and the optimism
    assert "suggestion 2 was evaluated" in page(out, "search")


def test_the_page_leads_with_the_best_of_each_entry_its_interval_and_the_network(out):
    (lead,) = re.findall('(?s)<p class="lead">(.*?)</p>', page(out, "ladder", "search"))
    of_ladder, of_search = lead.splitlines()
    assert of_ladder.startswith("ladder: of 4 rungs compared by ECE on test, ")
    assert of_search.startswith("search: of 3 finished suggestions for ")
    assert "number 2 is chosen (ECE 4.00 %)" in of_search
    assert "base network" in of_ladder
    assert "base network" in of_search
