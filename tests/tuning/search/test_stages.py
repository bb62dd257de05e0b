"""Searches that end suggestions early, with trials answered by a function of settings and seed."""

import random
import shutil
from dataclasses import replace

import pytest

from tests.support import sample
from tests.tuning.search.support import POPULATION, any_job, definition_of, row, run_source
from tune_calib.errors import UserError
from tune_calib.spec.resolved import Seeds
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search.outcome import describe_rungs
from tune_calib.tuning.search.run import open_state
from tune_calib.tuning.search.source import StudySource
from tune_calib.tuning.search.stages import Stages
from tune_calib.tuning.search.state import SearchState

NOISE = 0.02
LENGTH = 27


class KilledError(Exception):
    """A kill."""


class Answered(SearchState):
    """Trials that are answered instead of trained; a dictionary stands for the files of rows."""

    noise = NOISE
    diverges: tuple[int, int] | None = None  # suggestion and seed

    def collect(self, trial):
        for planned in trial.trials:
            spec = planned.spec
            self.files[spec.hash] = self.rows[spec.hash] = self.answer(planned)

    def answer(self, planned):
        spec = planned.spec
        slot = spec.head or spec.network
        chance = random.Random(spec.hash)
        loss = abs(slot.lr - 0.05) + 0.05 / slot.epochs + 0.1 * slot.seed
        loss += self.noise * chance.gauss()
        status = "diverged" if (planned.rung, slot.seed) == self.diverges else "done"
        return row(status, spec.network.seed, ece=loss, accuracy=0.9 - 0.01 * chance.random())

    def read_rows(self, name="*"):
        self.rows |= self.files


def definition(method="mac_cal", seeds=3, **rule):
    question = definition_of(method, given={
        "network": {"backbone": "small_cnn", "epochs": 27, "augment": "none"},
        "head": {"augment": "none", "epochs": 27},
    })  # fmt: skip
    numbers = tuple(range(seeds))
    resolved = replace(question.resolved, seeds=Seeds(numbers, numbers, is_paired=True))
    return replace(question, resolved=resolved, **rule)


def open_answered(out, question, files, **answers):
    out.mkdir(exist_ok=True)
    state = open_state(replace(any_job(out), definition=question))
    state = Answered(out, question, state.study, LENGTH)
    state.files = files
    for name, value in answers.items():
        setattr(state, name, value)
    for baseline in state.stages.all_baselines:
        files[baseline.spec.hash] = row(seed=baseline.spec.network.seed, ece=0.5, accuracy=0.9)
    state.read_rows()
    return state


def search(out, question, files, end=lambda running: next(iter(running)), length=LENGTH, **answers):
    """Complete a search; ``end`` chooses the trial that ends next."""
    state = open_answered(out, question, files, **answers)
    state.length = length
    at_once = 3 if state.candidates.kind == "network" else 4

    def end_one(running):
        key = end(running)
        del running[key]
        return key

    provenance = Provenance("out", "store", git_revision=None)
    source = StudySource(state, provenance, at_once, Tracker(""), is_ordered=True)
    run_source(Limited(source, at_once), end_one)
    assert state.is_over
    return state


class Limited:
    """A source of which an executor runs some trials at once."""

    def __init__(self, source, at_once):
        self.source, self.at_once, self.end = source, at_once, self.end_one

    def suggest(self, trial_id):
        if len(self.source.running) >= self.at_once:
            return None
        return self.source.suggest(trial_id)

    def end_one(self, trial_id):
        self.source.end(trial_id)


def content(state):
    """All that a search has decided: points, statuses, values for the sampler, rows."""
    trials = state.study.suggestions(range(len(state.study.states())))
    told = [(t.params, t.state, t.values, dict(t.constraints), t.user_attrs) for t in trials]
    return told, state.results, state.passed, state.files


RULES = [
    ("mac_cal", {"race": True}),
    ("mac_cal", {"halving": 3}),
    ("ls", {"race": True}),
    ("ls", {"halving": 3}),
]
ORDERS = {
    "last": lambda running: list(running)[-1],
    "random": lambda running: random.Random(len(running)).choice(list(running)),
}


@pytest.mark.parametrize(("method", "rule"), RULES)
def test_a_rule_saves_epochs_and_keeps_published_points(method, rule, tmp_path):
    state = search(tmp_path / "out", definition(method, **rule), {})
    early = [n for n, result in state.results.items() if result.status in ("raced", "stopped")]
    assert 5 < len(early) < LENGTH
    assert state.results[0].status == "done"
    chosen = state.objective.choose(state.results)
    assert len(state.passed[chosen]) == state.stages.count
    slots = {"ls": "network", "mac_cal": "head"}
    suggested = {h for stages in state._hashes.values() for hashes in stages for h in hashes}
    epochs = [e for n in state.results for e in epochs_of(state, n, slots[method])]
    assert sum(epochs) < 0.8 * LENGTH * 27 * 3
    assert len(epochs) == len(suggested & state.files.keys())


def epochs_of(state, number, slot):
    suggestion = state.study.suggestion(number)
    stages = state.stages.list_trials(suggestion.params, number)
    trials = [trial for stage in stages[: state.count_passed(suggestion)] for trial in stage]
    assert {trial.spec.hash for trial in trials} <= state.files.keys()
    return [getattr(trial.spec, slot).epochs for trial in trials]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("method", "rule"), sample(RULES, 2))
def test_the_order_in_which_trials_end_changes_nothing(method, rule, order, tmp_path):
    question = definition(method, **rule)
    whole = search(tmp_path / "first", question, {})
    assert content(search(tmp_path / order, question, {}, ORDERS[order])) == content(whole)


@pytest.mark.parametrize(("method", "rule"), sample(RULES, 2))
def test_a_search_killed_after_any_event_ends_as_an_undisturbed_one(method, rule, tmp_path):
    question, files = definition(method, **rule), {}
    whole = search(tmp_path / "whole", question, {})
    chance, kills = random.Random(1), 0
    left = chance.randrange(1, 12)

    def kill_or_end(running):
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError
        return chance.choice(list(running))

    while True:
        left = chance.randrange(1, 12)
        try:
            killed = search(tmp_path / "killed", question, files, kill_or_end)
        except KilledError:
            kills += 1
            continue
        break
    assert kills > 3
    assert content(killed) == content(whole)


@pytest.mark.parametrize(("method", "rule"), sample(RULES, 2))
def test_lost_rows_are_repeated(method, rule, tmp_path):
    question, files = definition(method, **rule), {}
    whole = content(search(tmp_path / "whole", question, dict(files)))
    state = search(tmp_path / "out", question, files)
    for spec_hash in random.Random(2).sample(sorted(files), 20):
        del files[spec_hash]
    del state
    assert content(search(tmp_path / "out", question, files)) == whole


@pytest.mark.parametrize(("method", "rule"), sample(RULES, 2))
def test_a_longer_search_is_the_one_of_that_length(method, rule, tmp_path):
    question, files = definition(method, **rule), {}
    whole = search(tmp_path / "whole", question, {})
    for length in (7, 18, 20):
        state = search(tmp_path / "longer", question, files, length=length)
        if "halving" in rule:
            assert state.planned == 9 * -(-length // 9)
    longer = search(tmp_path / "longer", question, files)
    assert content(longer) == content(whole)


def test_the_study_can_be_rebuilt_from_the_rows(tmp_path):
    question, files = definition(race=True), {}
    whole = search(tmp_path / "whole", question, files)
    shutil.rmtree(tmp_path / "whole")
    assert content(search(tmp_path / "whole", question, files)) == content(whole)


def test_a_suggestion_that_diverges_at_its_second_seed_gets_no_third(tmp_path):
    first = search(tmp_path / "first", definition(race=True), {})
    number = next(n for n in range(POPULATION, LENGTH) if len(first.passed[n]) == 3)
    state = search(tmp_path / "out", definition(race=True), {}, diverges=(number, 1))
    assert state.results[number].status == "diverged"
    assert len(state.passed[number]) == 2
    assert list(map(len, state.passed.values())).count(3) > 1
    # A published point is complete in any case.
    state = search(tmp_path / "published", definition(race=True), {}, diverges=(0, 1))
    assert (state.results[0].status, len(state.passed[0])) == ("diverged", 3)


def test_without_noise_only_better_suggestions_are_complete(tmp_path):
    state = search(tmp_path / "out", definition(race=True), {}, noise=0.0)
    for number in range(POPULATION, LENGTH):
        earlier = range(number // POPULATION * POPULATION)
        complete = [state.results[n].values[0] for n in earlier if state.results[n].values]
        (first, *_), raced = state.passed[number], state.results[number].status == "raced"
        mean = first.values[0] + 0.1  # over the seeds 0, 1 and 2
        assert raced == (mean > min(complete) + 1e-9)
        assert state.study.suggestion(number).values == [pytest.approx(mean)]


def test_the_sampler_reads_the_lowest_rung_of_every_suggestion(tmp_path):
    state = search(tmp_path / "out", definition("ls", halving=3), {})
    assert state.stages.rungs == (3, 9, 27)
    for number, stages in state.passed.items():
        assert state.study.suggestion(number).values == list(stages[0].values)
    counts = [sum(len(stages) > k for stages in state.passed.values()) for k in range(3)]
    assert counts[0] == LENGTH
    assert 9 <= counts[1] <= 10  # a third of each bracket, and the published point
    assert 3 <= counts[2] <= 4


def test_promotions_stop_when_short_schedules_tell_nothing(tmp_path, monkeypatch):
    def answer(self, planned):
        network = planned.spec.network
        loss = 0.1 + 0.9 * random.Random(str(network.lr)).random()
        if network.epochs > 3:
            loss = 1.1 - loss  # the best is the worst
        return row("done", network.seed, ece=loss, accuracy=0.9)

    monkeypatch.setattr(Answered, "answer", answer)
    question = definition("ls", seeds=1, halving=3)
    state = search(tmp_path / "out", question, {}, length=54)
    promoted = [n for n, stages in state.passed.items() if len(stages) > 1]
    pairs = [sum(n < 9 * k for n in promoted) for k in range(7)]
    first = next(k for k, count in enumerate(pairs) if count >= 12)
    assert max(promoted) < 9 * (first + 1)  # a bracket does not read the one before it
    assert any("no more are promoted" in line for line in describe_rungs(state))


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("mac_cal", {"race": True, "halving": 3}, "not rungs"),
        ("mac_cal", {"race": True, "sampler": "nsga2"}, "nsga2 needs all"),
        ("mac_cal", {"halving": 3, "sampler": "grid"}, "grid needs all"),
        ("mac_cal", {"race": True, "sampler": "one-at-a-time"}, "one-at-a-time needs all"),
        ("mac_cal", {"race": True, "seeds": 1}, "at least two"),
        ("temperature", {"halving": 3}, "post-hoc"),
        ("ls", {"halving": 12}, "1/12 of the 27 epochs"),
    ],
)
def test_rules_that_do_not_fit_are_refused(method, changes, message):
    with pytest.raises(UserError, match=message):
        Stages(definition(method, **changes)).check()


def test_rungs_are_complete_schedules_of_at_least_three_epochs():
    assert Stages(definition("ls", halving=2)).rungs == (7, 14, 27)
    assert Stages(definition("ls", halving=5)).rungs == (5, 27)
    stages = Stages(definition("mac_cal", halving=4))
    assert stages.rungs == (7, 27)
    first, second = stages.list_trials({}, 0)
    assert {trial.spec.head.epochs for trial in first} == {7}
    assert {trial.spec.network.epochs for trial in first} == {27}
    assert second == stages.candidates.trials({}, 0)
    networks = Stages(definition("ls", halving=3)).baselines
    assert [[t.spec.network.epochs for t in trials] for trials in networks] == [
        [3] * 3, [9] * 3, [27] * 3,
    ]  # fmt: skip


def test_the_seeds_of_a_network_are_raced_together():
    question = definition(race=True)
    seeds = Seeds((0, 1), (0, 1, 2), is_paired=False)
    crossed = Stages(replace(question, resolved=replace(question.resolved, seeds=seeds)))
    assert crossed.sizes == [3, 3]
    one = replace(seeds, network=(0,))
    heads = Stages(replace(question, resolved=replace(question.resolved, seeds=one)))
    assert heads.sizes == [1, 1, 1]
