"""A search without Ray's processes: objective, storage, study, batches, interruptions."""

import itertools
import operator
import random
from pathlib import Path

import pytest
import torch

from tests.support import drive, rows, sample
from tests.tuning.search.support import ECE, GIVEN, row, run_source, study_in
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import DevelopmentBank, FeatureBank, bank_key
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.results.tables import read_table
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.text import command_line, mask_url, mask_urls
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search.definition import (
    Candidates,
    Objective,
    SearchDefinition,
    SuggestionResult,
)
from tune_calib.tuning.search.source import StudySource
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.search.storage import open_storage
from tune_calib.tuning.search.study import SearchStudy
from tune_calib.tuning.work.jobs import make_plan
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker


def test_a_verdict_averages_the_seeds_and_keeps_the_worst_status():
    baseline = {0: 0.9, 1: 0.8}
    two = [row(seed=0, ece=0.1, accuracy=0.9), row(seed=1, ece=0.2, accuracy=0.77)]
    standing = ECE.summarise(two, baseline)
    assert standing.values == pytest.approx((0.15,))
    assert standing.drop == pytest.approx(0.015)
    assert ECE.excess(standing) > 0
    assert ECE.summarise([two[0], row("diverged")], baseline).status == "diverged"
    assert ECE.summarise([two[0], row("diverged")], baseline) == SuggestionResult("diverged")
    assert ECE.summarise([two[0], None], baseline).status == "crashed"


def test_a_drop_of_exactly_the_guard_is_within():
    standing = ECE.summarise([row(ece=0.1, accuracy=0.88)], {0: 0.89})
    assert ECE.excess(standing) <= 0


def test_the_choice_is_the_best_first_metric_of_the_pareto_set_within_the_guard():
    objective = Objective(("ece", "accuracy"), 0.01)
    standings = {
        0: SuggestionResult("done", (0.05, 0.90), 0.0),
        1: SuggestionResult("done", (0.03, 0.88), 0.0),
        2: SuggestionResult("done", (0.04, 0.87), 0.0),
        3: SuggestionResult("done", (0.01, 0.80), 0.1),
        4: SuggestionResult("diverged"),
        5: SuggestionResult("done", (0.03, 0.88), 0.0),
    }
    for order in itertools.permutations(standings):
        shuffled = {n: standings[n] for n in order}
        assert objective.find_front(shuffled) == [1, 0]
        assert objective.choose(shuffled) == 1
    assert Objective(("ece", "accuracy"), 0.2).choose(standings) == 3
    assert objective.choose({3: standings[3]}) is None


def test_the_pareto_set_has_the_results_that_no_other_dominates():
    objective, generator = Objective(("ece", "accuracy", "nll"), 0.01), random.Random(0)
    for count in (1, 12, 60):
        losses = [tuple(generator.randrange(4) for _ in range(3)) for _ in range(count)]  # ties
        results = {}
        for number, (ece, error, nll) in enumerate(losses):
            results[number] = SuggestionResult("done", (ece / 4, 1 - error / 4, nll / 4), 0.0)
        expected = []
        for number, vector in enumerate(losses):
            others = {other for other in losses if other != vector}
            is_dominated = any(all(map(operator.le, other, vector)) for other in others)
            if not is_dominated and losses.index(vector) == number:
                expected.append(number)
        front = objective.find_front(results)
        assert sorted(front) == expected
        assert front == sorted(front, key=losses.__getitem__)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (("ecee",), "did you mean 'ece'"),
        (("ece", "ece"), "twice"),
        (("auroc",), "sees only select"),
        (("ece", "confidence_gap"), "`metric` confidence_gap .* has no best value"),
    ],
)
def test_an_impossible_objective_is_refused(metrics, message):
    with pytest.raises(UserError, match=message):
        Objective(metrics, 0.01)


def suggested_points(study: SearchStudy, count: int) -> list[dict]:
    """Suggestions, told three behind with values that depend on them alone."""
    points = []
    for number in range(count):
        points.append(dict(study.suggestion(number).params))
        last = number - 3
        if last >= 0 and not study.suggestion(last).state.is_finished():
            value = points[last]["head.lr"]
            study.write_result(
                last, SuggestionResult("done", (value,) * len(study._study.directions), value / 10)
            )
    return points


@pytest.mark.parametrize("metrics", sample(zip([("ece", "accuracy"), ("ece",)]), 1))
@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
def test_equal_seeds_suggest_equally_and_others_do_not(tmp_path, sampler, metrics):
    objective = Objective(metrics, 0.01)
    first = suggested_points(study_in(tmp_path / "a", sampler, objective=objective), 24)
    assert suggested_points(study_in(tmp_path / "b", sampler, objective=objective), 24) == first
    other = suggested_points(study_in(tmp_path / "c", sampler, seed=1, objective=objective), 24)
    published = len(Candidates("mac_cal", ResolvedRequest(GIVEN)).first())
    assert other[:published] == first[:published]
    assert all(a != b for a, b in zip(other[published:], first[published:], strict=True))


def test_failed_suggestions_have_no_value_in_the_study(tmp_path):
    study = study_in(tmp_path)
    for number, status in enumerate(("diverged", "crashed", "done")):
        study.suggestion(number)
        study.write_result(
            number, SuggestionResult(status, (0.5,) if status == "done" else (), 0.0)
        )
    assert study.states() == ["diverged", "crashed", "done"]
    trials = study._study.get_trials()
    assert [trial.state.name for trial in trials] == ["FAIL", "FAIL", "COMPLETE"]
    assert [trial.value for trial in trials] == [None, None, 0.5]
    assert trials[2].constraints == {"accuracy": pytest.approx(-0.01)}


def test_a_crashed_suggestion_is_suggested_again_once(tmp_path):
    study = study_in(tmp_path)
    point = study.suggestion(0).params
    study.write_result(0, SuggestionResult("crashed"))
    for _ in range(2):
        study.retry("crashed")
    assert study.states() == ["crashed", "running"]
    assert study.suggestion(1).params == point
    assert study._study.trials[1].user_attrs == {"retry_of": 0}
    second = Candidates("mac_cal", ResolvedRequest(GIVEN)).first()[1]
    assert study.suggestion(2).params == second


@pytest.mark.parametrize(
    "url", ["nonsense", "sqlite:////nowhere/at/all.db", "postgresql://u:p@h/d"]
)
def test_a_storage_that_cannot_be_opened_is_one_line_without_the_password(url, tmp_path):
    with pytest.raises(UserError, match="study_storage") as error:
        open_storage(url, tmp_path)
    assert "\n" not in str(error.value)
    assert "u:p@" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://u:SECRET@h:5432/db", "postgresql://u:***@h:5432/db"),
        (
            "postgresql://h/db?user=u&password=SECRET&sslmode=require",
            "postgresql://h/db?user=***&password=***&sslmode=***",
        ),
        ("postgresql://h/db?password=a&SECRET", "postgresql://h/db?password=***&***"),
        ("mssql+pyodbc:///?odbc_connect=PWD%3DSECRET", "mssql+pyodbc:///?odbc_connect=***"),
        ("postgresql://u:p@SECRET@h/db", "postgresql://***"),
        ("sqlite:////a@b.db?mode=ro", "sqlite:////a@b.db?mode=***"),
    ],
)
def test_secrets_in_urls_are_masked(url, masked, tmp_path):
    assert mask_url(url) == mask_url(masked) == masked
    command = command_line(["search", f"--study-storage={url}", "--study-storage", url])
    assert "SECRET" not in command
    assert "SECRET" not in mask_urls(f"could not parse '{url.replace(' ', '')}'.")
    if "SECRET" in url:
        with pytest.raises(UserError) as refused:
            open_storage(url, tmp_path)
        assert "SECRET" not in str(refused.value)


def test_a_grid_is_every_combination_after_the_published_values(tmp_path):
    head = {
        "shape": "linear",
        "lr": 0.1,
        "weight_decay": 0.0,
        "q_min": 0.3,
        "gamma": 1.0,
        "loss_reduction": "mean",
        "masked_update": "grad_only",
        "statistics": "masked_running",
    }
    study = study_in(tmp_path, "grid", given={"head": {**head, "batch_size": 128}})
    points = [dict(study.suggestion(number).params) for number in range(28)]
    assert points[0] == {"head.q0": 0.5, "head.tau0": 0.05, "head.tau_decay": 5.0}
    assert len({tuple(point.values()) for point in points}) == 28
    assert all(set(point) == set(points[0]) for point in points)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("search") / "store")


def searched(out: Path, store: Store, planned=20, dies_after=float("inf"), given=GIVEN, order=0):
    run = Provenance(str(out), str(store.root), git_revision=None, is_search=True)
    definition = SearchDefinition("mac_cal", ResolvedRequest(given), ECE, population=6)
    state = SearchState(out, definition, study_in(out, given=given), planned)
    state.read_rows()
    for trial in make_plan(state.candidates.baseline(), set(state.rows)).networks:
        drive(NetworkWorker({"run": run.plain(), "job": trial.config()}))
    state.read_rows()
    chance, left = random.Random(order), itertools.count()

    def end(running):
        """End one of the trials in any order, by the same Trainable in this process."""
        if next(left) >= dies_after:
            raise KeyboardInterrupt
        number = chance.choice(list(running))
        drive(HeadWorker(running.pop(number)))
        return number

    source = StudySource(state, run, 2, Tracker(""))
    source.largest = 4
    run_source(source, end)
    return state


@pytest.fixture(scope="module")
def finished_run(store, tmp_path_factory):
    return searched(tmp_path_factory.mktemp("search") / "whole", store)


def test_a_search_reads_no_test_split(finished_run, store):
    columns = set(read_table(finished_run.out, "trials").column_names)
    assert "select/ece" in columns
    assert not any(name.startswith("test/") for name in columns)
    assert set(read_table(finished_run.out, "bins")["split"].to_pylist()) == {"select"}
    assert not list(store.root.glob("banks/*/test.arrow"))
    spec = finished_run.candidates.trials({}, 0)[0].spec
    key = bank_key(spec, spec.head)
    bank = ensure_bank(DevelopmentBank, spec, key, store, None, None)
    assert not hasattr(bank, "test")
    assert set(bank.evaluated()) == {"select", "calib"}
    actor = NetworkWorker.__new__(NetworkWorker)
    actor.provenance = Provenance("out", "store", is_search=True)
    with pytest.raises(ValueError, match="test split"):
        actor.test_split()


def test_a_bank_of_a_search_is_completed_with_test_for_a_ladder(finished_run, tmp_path):
    spec = finished_run.candidates.trials({}, 0)[0].spec
    store, cpu = Store(tmp_path), torch.device("cpu")
    run = NetworkTraining(spec, store, load_development(spec.data, None), cpu)
    while run.step() is not None:
        pass
    run.close()
    key = bank_key(spec, spec.head)
    shown = lambda: (load_development(spec.data, None), None)  # noqa: E731
    shut = ensure_bank(DevelopmentBank, spec, key, store, shown, cpu)
    features = shut.select().features.clone()

    def splits():
        return load_development(spec.data, None), load_test(spec.data, None)

    opened = ensure_bank(FeatureBank, spec, key, store, splits, cpu)
    assert len(opened.test().labels) == len(load_test(spec.data, None))
    assert torch.equal(opened.select().features, features)


@pytest.mark.slow
def test_the_order_in_which_actors_end_changes_nothing(finished_run, store, tmp_path):
    again = searched(tmp_path / "again", store, order=1)
    assert rows(again.out) == rows(finished_run.out)
    assert again.results == finished_run.results


@pytest.mark.parametrize("dies_after", sample([0, 1, 3, 5, 8], 1))
def test_interrupted_and_run_again_gives_the_same_search(finished_run, store, tmp_path, dies_after):
    out = tmp_path / "interrupted"
    with pytest.raises(KeyboardInterrupt):
        searched(out, store, dies_after=dies_after)
    written = {path: path.stat().st_mtime_ns for path in out.glob("trials/*.parquet")}
    again = searched(out, store)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert rows(out) == rows(finished_run.out)
    assert again.results == finished_run.results


def test_heads_that_diverge_fail_in_the_study_and_do_not_win(store, tmp_path):
    setting = {"lr": 1e30, "clip_grad_norm": None}
    settings = {**GIVEN, "head": {**GIVEN["head"], **setting}}
    state = searched(tmp_path / "out", store, planned=8, given=settings)
    assert set(state.study.states()) == {"diverged"}
    assert state.objective.choose(state.results) is None
