"""Searches without Ray's processes: what several of their tests need."""

from dataclasses import replace
from pathlib import Path

from tune_calib.experiments.entries import plan_entries
from tune_calib.experiments.file import read_experiment_file
from tune_calib.results.tables import NUMBERS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search.definition import Objective, SearchDefinition
from tune_calib.tuning.search.run import open_state
from tune_calib.tuning.search.source import StudySource
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.search.study import SearchStudy
from tune_calib.tuning.work.executor import OVER

ECE = Objective(("ece",), 0.01)


GIVEN = {
    "network": {"backbone": "small_cnn", "epochs": 1, "augment": "none"},
    "head": {"augment": "none", "epochs": 2},
}


def row(status="done", seed=0, **values):
    metrics = {f"select/{name}": value for name, value in values.items()}
    return {"status": status, "epoch": 3, "network_seed": seed, **metrics}


def study_in(out: Path, sampler="tpe", seed=0, objective=ECE, given=GIVEN) -> SearchStudy:
    out.mkdir(exist_ok=True)
    return SearchStudy(
        SearchDefinition("mac_cal", ResolvedRequest(given), objective, sampler, seed), out
    )


POPULATION = 4


class Untrained(SearchState):
    """Trials whose rows are made up from their specs instead of trained."""

    def collect(self, trial):
        for planned in trial.trials:
            score = int(planned.spec.hash, 16) % 1000 / 1000
            values = dict.fromkeys(self.objective.metrics, score)
            self.rows[planned.spec.hash] = row(**{**values, "accuracy": 0.5 + score / 2})


def run_source(source, end=lambda running: running.popitem()[0]):
    """In the place of an executor: trials run together until ``end`` takes one out and ends it."""
    running = {}
    for number in map(str, range(10**6)):
        config = source.suggest(number)
        if isinstance(config, dict):
            running[number] = config
        elif running:
            source.end(end(running))
        else:
            assert config == OVER
            return


def definition_of(method, sampler="tpe", given=GIVEN, metrics=("ece",)):
    kind = METHODS[method].kind
    slots = {"network", kind} if kind == "head" else {"network"}
    given = {slot: asked for slot, asked in given.items() if slot in slots or slot == kind}
    objective = Objective(metrics, 0.5)
    return SearchDefinition(
        method, ResolvedRequest(given), objective, sampler, 3, population=POPULATION
    )


def any_job(out):
    """A run in a folder, whose definition is still to be put in."""
    read = read_file(out.parent, "entries: {a: {methods: [ls], search: {trials: 1}}}")
    return moved(plan_entries(read, "it")[0].run, out=out)


def moved(job, **location):
    """The same run elsewhere."""
    return replace(job, location=replace(job.location, **location))


def open_untrained(out, question) -> Untrained:
    """The search of a folder, or a new one, whose baseline is there."""
    out.mkdir(exist_ok=True)
    job = replace(any_job(out), definition=question)
    state = open_state(job)
    executor = Untrained(out, question, state.study, state.length)
    for baseline in executor.candidates.baseline():
        values = dict.fromkeys(question.objective.metrics, 0.5)
        executor.rows[baseline.spec.hash] = row(**{**values, "accuracy": 0.9})
    return executor


def searched(out, question, asked) -> Untrained:
    """A search of some length, or what a folder lacks of it."""
    state = open_untrained(out, question)
    state.length = asked
    for number in range(len(state.study.states())):  # rows that an earlier session wrote
        for planned_trial in state.start([state.study.suggestion(number)]):
            state.collect(type("Done", (), {"trials": [planned_trial]}))
    state._started.clear()
    run_source(StudySource(state, Provenance("out", "store", git_revision=None), 1, Tracker("")))
    return state


def stored(spec_hash, values) -> dict:
    return {"schema_version": 1, "numbers": NUMBERS, "spec_hash": spec_hash, "rung": 0, **values}


def read_file(folder, text):
    path = folder / "experiment.yaml"
    path.write_text(text)
    return read_experiment_file(path)
