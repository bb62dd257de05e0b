"""One truth of a search: its rows, whatever is lost of them, of its study, or who else writes."""

import resource
import shutil
from dataclasses import replace

import pytest

from analysis.search.load import is_complete
from tests.tuning.search.support import (
    any_job,
    definition_of,
    open_untrained,
    run_source,
    searched,
    stored,
)
from tune_calib.api.runs import evaluate_search
from tune_calib.errors import UserError
from tune_calib.results.manifests import RUN_MANIFEST, SearchManifest
from tune_calib.results.selection import EVALUATION
from tune_calib.results.tables import write_results
from tune_calib.spec.names import JOURNAL, SEARCH_EVALUATED, SEARCH_MANIFEST
from tune_calib.spec.request import EvaluateRequest
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.plan import execute_run
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search.definition import SuggestionResult
from tune_calib.tuning.search.evaluate import plan_evaluation
from tune_calib.tuning.search.outcome import write_outcome
from tune_calib.tuning.search.run import count_suggestions, load_search, open_state
from tune_calib.tuning.search.source import StudySource
from tune_calib.tuning.search.storage import _Journal
from tune_calib.tuning.search.study import SearchStudy, search_status

TRIALS = 12


@pytest.fixture(scope="module")
def finished_search(tmp_path_factory):
    """A finished search in its folder, with a row for each of its trials."""
    out = tmp_path_factory.mktemp("truth") / "whole"
    state = searched(out, definition_of("mac_cal"), TRIALS)
    job = replace(any_job(out), definition=state.definition, length=TRIALS)
    job.build_manifest().write(out)
    numbers = {t.spec.hash: -1 for t in state.candidates.baseline()}
    for number in reversed(range(TRIALS)):
        numbers |= dict.fromkeys(state.hashes(state.study.suggestion(number)), number)
    for spec_hash, row in state.rows.items():
        content = {**stored(spec_hash, row), "rung": numbers[spec_hash]}
        content["sweep"] = state.definition.identity
        write_results(out, f"heads-{spec_hash}-1", {"trials": [content]})
    state.read_rows()
    write_outcome(state, job.location)
    return state


def copy_of(finished_search, out):
    """A copy of the search, opened as its driver does; its rows are those on disk."""
    shutil.copytree(finished_search.out, out)
    return reopened(finished_search, out)


def reopened(finished_search, out):
    state = open_untrained(out, finished_search.definition)
    state.length = TRIALS
    state.rows.clear()
    state.read_rows()
    return state


def lose(finished_search, out, *numbers):
    """Delete the rows of some suggestions."""
    for number in numbers:
        for spec_hash in finished_search.hashes(finished_search.study.suggestion(number)):
            (out / "trials" / f"heads-{spec_hash}-1.parquet").unlink()


def test_a_finished_suggestion_without_its_row_is_repeated_as_it_was(finished_search, tmp_path):
    out = tmp_path / "out"
    assert copy_of(finished_search, out).is_over
    lose(finished_search, out, 3, 7)
    state = reopened(finished_search, out)
    assert not state.is_over
    assert state.count_left() == 2
    assert "continue with: tune-calib resume" in search_status(out)
    assert count_suggestions(out, None, TRIALS) == (TRIALS - 2, TRIALS)
    with pytest.raises(UserError, match="not finished; run tune-calib resume"):
        plan_evaluation(EvaluateRequest(out=str(out), seeds=3), "it")
    assert not is_complete(out)  # a report writes the outcome anew
    state.settle_ended()
    assert 3 not in state.results
    journal = (out / JOURNAL).read_bytes()
    repeated = []
    state.collect = lambda trial: (  # in the place of its training
        repeated.extend(planned.rung for planned in trial.trials),
        state.rows.update({t.spec.hash: finished_search.rows[t.spec.hash] for t in trial.trials}),
    )
    provenance = Provenance("out", "store", git_revision=None)
    run_source(StudySource(state, provenance, 1, Tracker("")))
    assert sorted(repeated) == [3, 7]
    assert state.results == finished_search.results
    assert (out / JOURNAL).read_bytes() == journal


def test_a_lost_baseline_requires_a_resume(finished_search, tmp_path):
    out = tmp_path / "out"
    state = copy_of(finished_search, out)
    (baseline,) = state.candidates.baseline()
    (out / "trials" / f"heads-{baseline.spec.hash}-1.parquet").unlink()
    state = reopened(finished_search, out)
    assert not state.is_over
    with pytest.raises(UserError, match=r"has no result; .* run tune-calib resume"):
        _ = state.baselines
    state.errors = {"network": "cannot write a.parquet: No space left on device"}
    with pytest.raises(UserError, match=r"crashed \(cannot write .* No space left") as error:
        _ = state.baselines
    assert "network.lr" not in str(error.value)


def database(folder) -> str:
    return f"sqlite:///{folder}/study.db"


def study_of(out, url, finished_search):
    out.mkdir(exist_ok=True)
    return SearchStudy(finished_search.definition, out, url)


def test_a_study_in_a_database_has_one_driver(finished_search, tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    for name in "ab":
        (tmp_path / name).mkdir()
    first = SearchStudy(finished_search.definition, tmp_path / "a", url)
    assert len(first.suggestions(range(4))) == 4
    SearchStudy(finished_search.definition, tmp_path / "b", url, is_read_only=True)
    first.suggestions(range(4, 6))
    again = SearchStudy(finished_search.definition, tmp_path / "b", url)
    with pytest.raises(UserError, match="another tune-calib took over"):
        first.suggestions(range(4, 8))
    with pytest.raises(UserError, match="another tune-calib took over"):
        first.write_result(0, SuggestionResult("done", (0.1,), 0.0))
    again.write_result(0, SuggestionResult("done", (0.1,), 0.0))
    assert again.states() == ["done", *["running"] * 5]


def test_a_full_disk_leaves_the_journal_whole(tmp_path):
    journal = _Journal(tmp_path / JOURNAL)
    journal.append_logs([{"op": 1}])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(OSError, match="No space left"):
            journal.append_logs([{"op": 2, "text": "x" * 50}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / JOURNAL).read_bytes() == b'{"op":1}\n'


NOWHERE = "127.0.0.1:1"


@pytest.fixture
def crashed(finished_search, tmp_path):
    """A search whose last suggestion crashed."""
    out = tmp_path / "out"
    study = copy_of(finished_search, out).study
    study.suggestion(TRIALS)
    study.write_result(TRIALS, SuggestionResult("crashed"))
    SearchManifest.read(out).model_copy(update={"trials": TRIALS + 1}).write(out)
    return out


def test_a_continuation_that_fails_plans_nothing(crashed):
    plan = (crashed / SEARCH_MANIFEST).read_bytes()
    search = load_search(crashed, None, NOWHERE)
    with pytest.raises(UserError, match=f"no Ray cluster at `address` {NOWHERE}"):
        execute_run(replace(search, length=44, retry="crashed"), Context())
    assert (crashed / SEARCH_MANIFEST).read_bytes() == plan
    states = SearchStudy(search.definition, crashed, is_read_only=True).states()
    assert states == [*["done"] * TRIALS, "crashed"]


def test_crashed_suggestions_that_are_to_be_retried_are_left_to_do(crashed):
    search = load_search(crashed, None)
    for retry, is_over in ((None, True), ("crashed", False)):
        state = open_state(replace(search, retry=retry))
        state.read_rows()
        assert state.is_over == is_over
    state.study.retry("crashed")
    assert state.study.find_retries("crashed") == []


def test_an_evaluation_that_cannot_begin_does_not_end_its_search(finished_search, tmp_path):
    out = tmp_path / "out"
    copy_of(finished_search, out)
    request = EvaluateRequest(out=str(out), seeds=2, address=NOWHERE)
    with pytest.raises(UserError, match="no Ray cluster"):
        evaluate_search(request, "it", Context())
    assert not (out / SEARCH_EVALUATED).exists()
    assert not (out / EVALUATION / RUN_MANIFEST).exists()


def test_a_search_continues_on_another_cluster_or_on_none(finished_search, tmp_path):
    out = tmp_path / "out"
    copy_of(finished_search, out)
    cluster = {"address": "10.0.0.1:6379", "gpus": 0.25, "at_once": 3}
    SearchManifest.read(out).model_copy(update=cluster).write(out)

    def place(address=None):
        run = load_search(out, None, address)
        run.check()
        location = run.location
        return location.address, location.gpus, run.at_once, run.build_manifest().address

    assert place() == ("10.0.0.1:6379", 0.25, 3, "10.0.0.1:6379")
    assert place("10.0.0.2:6379") == ("10.0.0.2:6379", 0.25, 3, "10.0.0.2:6379")
    assert place("none") == ("none", 1, 1, "none")
