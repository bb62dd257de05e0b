"""Searches that start from earlier ones, and searches that were joined."""

import shutil
from dataclasses import replace

import pytest

from tests.support import QUICK, here, rows
from tests.tuning.search.support import definition_of
from tune_calib.results.manifests import ReusedRecord, SearchManifest, SearchOutcome
from tune_calib.results.tables import read_table
from tune_calib.spec.names import REUSED

SEARCH = ["search", "mac_cal", "--epochs", 8, "--head-epochs", 2, *QUICK[4:8], "--guard", 1.0]
SEARCH += ["--population", 2, "--address", "none"]


def run(out, *options):
    done = here(*SEARCH, "--out", out, *options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Two searches of equal space and objective with other samplers."""
    folder = tmp_path_factory.mktemp("warm")
    run(folder / "a", "--trials", 8, "--store", folder / "store")
    run(folder / "b", "--trials", 6, "--sampler-seed", 1, "--store", folder / "store")
    return folder / "a", folder / "b"


def by_hash(out):
    names = ("select/ece", "select/accuracy", "status")
    return {row["spec_hash"]: [row[name] for name in names] for row in rows(out)}


def list_ece(out):
    """List the ECE of each suggestion with its settings, in their order."""
    values = by_hash(out)
    entries = SearchOutcome.read(out).suggestions
    return [(values[entry.specs[0]][0], entry.point) for entry in entries if entry.is_within]


@pytest.mark.slow
def test_the_best_points_come_first_and_their_rows_are_taken_also_after_a_kill(earlier, tmp_path):
    source = tmp_path / "a"
    shutil.copytree(earlier[0], source)
    out, options = tmp_path / "out", ["--trials", 11, "--sampler-seed", 2, "--reuse", source]
    options += ["--store", earlier[0].parent / "store"]
    run(out, *options)
    best = [point for _, point in sorted(list_ece(source), key=lambda pair: pair[0])]
    assert len(best) > 5
    published = [entry.point for entry in SearchOutcome.read(source).suggestions[:4]]
    expected = [*published, *(point for point in best[:5] if point not in published)]
    assert len(expected) > 4
    outcome, values = SearchOutcome.read(out), by_hash(source)
    assert [entry.point for entry in outcome.suggestions[: len(expected)]] == expected
    taken = [entry.specs[0] for entry in outcome.suggestions[: len(expected)]]
    assert set(outcome.reused) == set(taken)
    assert {spec: by_hash(out)[spec] for spec in taken} == {spec: values[spec] for spec in taken}
    assert f"trained {2 * (11 - len(taken))} epochs" in here("report", out).stdout
    (record,) = SearchManifest.read(out).question.reuse
    assert (out / REUSED / record.content / "trials").exists()
    # Once begun, it does not need the earlier search any more.
    again = tmp_path / "again"
    assert here(*SEARCH, "--out", again, *options, "--max-hours", 1e-9).returncode == 3
    shutil.rmtree(source)
    assert here("resume", again).returncode == 0
    assert SearchOutcome.read(again).suggestions == outcome.suggestions
    assert by_hash(again) == by_hash(out)
    refused = here(*SEARCH, "--out", again, *options)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    shutil.copytree(earlier[1], source)  # another one under the same name
    changed = here(*SEARCH, "--out", again, *options)
    assert "which differs in reuse" in changed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "nll"], 'differs in metric (["ece"], here ["nll"])'),
        (["--guard", 0.5], "differs in guard (1.0, here 0.5)"),
        (["--set", "head.gamma=0.9"], "differs in the space of head.gamma ("),
        (["--join", "--seeds", 2], "differs in seeds ("),
        (["--join", "--head-epochs", 3], "differs in given ("),
        (["--join", "--sampler", "grid"], "--join needs --reuse"),
    ],
)
def test_another_space_or_objective_is_refused_in_one_line(earlier, tmp_path, options, message):
    out = tmp_path / "out"
    refused = here(*SEARCH, "--out", out, "--reuse", earlier[0], *options)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert message in refused.stderr
    assert not out.exists()


@pytest.mark.slow
def test_joined_searches_are_one_without_new_trials(earlier, tmp_path):
    out = tmp_path / "out"
    done = run(out, "--reuse", earlier[0], "--reuse", earlier[1], "--join")
    assert "trained 0 epochs" in done.stdout
    outcome = SearchOutcome.read(out)
    assert outcome.planned == len(outcome.suggestions) == 8 + 6 - 4  # four points are published
    assert by_hash(out) == by_hash(earlier[1]) | by_hash(earlier[0])
    assert len(read_table(out, "trials")) == 1 + outcome.planned
    ece, best = min(list_ece(out), key=lambda pair: pair[0])
    assert outcome.suggestions[outcome.chosen].point == best
    assert ece == min(pair[0] for folder in earlier for pair in list_ece(folder))
    assert "nothing is left to do" in here("resume", out).stderr
    evaluated = here("evaluate", out, "--seeds", 1)
    assert evaluated.returncode == 0, evaluated.stderr


def test_earlier_points_follow_the_published_ones_each_once_and_change_the_identity():
    published = definition_of("mac_cal").points
    other = {**published[0], "head.lr": 0.033}
    record = ReusedRecord(search="a", content="b", points=[other, published[0], other])
    warm = replace(definition_of("mac_cal"), reuse=(record,))
    assert warm.points == [*published, other]
    assert replace(warm, join=True).points == [published[0], other]
    identities = {warm.identity, replace(warm, join=True).identity}
    assert len(identities | {definition_of("mac_cal").identity}) == 3
