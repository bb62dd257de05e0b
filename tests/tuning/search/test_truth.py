"""One truth of a search: its rows, whatever is lost of them, of its study, or who else writes."""

import json
import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import each
from tests.tuning.search.support import (
    any_job,
    moved,
    open_untrained,
    question_of,
    searched,
    stored,
)
from tune_calib.errors import UserError
from tune_calib.results.manifests import SearchManifest
from tune_calib.results.tables import read_table, write_results
from tune_calib.spec.names import JOURNAL
from tune_calib.spec.request import EvaluateRequest
from tune_calib.tuning.search import study as study_module
from tune_calib.tuning.search.evaluate import plan_evaluation
from tune_calib.tuning.search.run import count_suggestions
from tune_calib.tuning.search.storage import lost_database
from tune_calib.tuning.search.study import SearchStudy, search_status

TRIALS = 12


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished search in its folder, with a row for each of its trials."""
    out = tmp_path_factory.mktemp("truth") / "whole"
    state = searched(out, question_of("mac_cal"), TRIALS)
    job = replace(any_job(out), definition=state.definition, length=TRIALS)
    job.build_manifest().write(out)
    numbers = {t.spec.hash: -1 for t in state.candidates.baseline()}
    for number in reversed(range(TRIALS)):
        numbers |= dict.fromkeys(state.hashes(state.study.suggestion(number)), number)
    for spec_hash, row in state.rows.items():
        content = {**stored(spec_hash, row), "rung": numbers[spec_hash]}
        content["sweep"] = state.definition.identity
        write_results(out, f"heads-{spec_hash}-1", {"trials": [content]})
    return state


def copy_of(whole, out):
    """A copy of the search, opened as its driver does; its rows are those on disk."""
    shutil.copytree(whole.out, out)
    return reopened(whole, out)


def reopened(whole, out):
    state = open_untrained(out, whole.definition)
    state.length = TRIALS
    state.rows.clear()
    state.read_rows()
    return state


def lose(whole, out, *numbers):
    """Delete the rows of some suggestions."""
    for number in numbers:
        for spec_hash in whole.hashes(whole.study.suggestion(number)):
            (out / "trials" / f"heads-{spec_hash}-1.parquet").unlink()


def test_a_finished_suggestion_without_its_row_is_open(whole, tmp_path):
    out = tmp_path / "out"
    state = copy_of(whole, out)
    assert state.is_over
    lose(whole, out, 3, 7)
    state = reopened(whole, out)
    assert not state.is_over
    assert state.count_left() == 2
    again = [trial.rung for trial in state.start(state.study.suggestions(range(TRIALS)))]
    assert again == []  # a fresh state begins all that has no row
    left = [s for s in state.study.suggestions(range(TRIALS)) if not state.has_ended(s)]
    assert [s.number for s in left] == [3, 7]
