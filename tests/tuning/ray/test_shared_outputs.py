"""Post-hoc trials of one network share the outputs of its clean bank."""

import itertools
import math

import pytest
import torch

from tests.support import CPU, drive, rows, run_of, sample
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import ensure_bank, load_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.evaluate import bank_logits, network_logits
from tune_calib.files.store import Store
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.jobs import make_plan
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker

HEAD = {"method": "retrain", "epochs": 1, "augment": "none"}


def planned(*slots):
    shared = {
        "data": {"train_fraction": 0.3},
        "network": {"backbone": "small_cnn", "epochs": 1, "augment": "none"},
    }
    specs = [TrialSpec.build(**shared, **own) for own in slots]
    return [PlannedTrial(spec, rung, f"rung {rung}") for rung, spec in enumerate(specs)]


def run(folder, trials, store, **provenance):
    """Carry some trials out, networks first."""
    plan, run_fields = make_plan(trials, set()), {**run_of(folder, store), **provenance}
    for kind, work in ((NetworkWorker, plan.networks), (HeadWorker, plan.head_batches)):
        for trial in work:
            actor = kind({"job": trial.config(), "run": run_fields})
            drive(actor)
            actor.cleanup()
    told = [{k: v for k, v in row.items() if v is not None} for row in rows(folder)]
    return {row["spec_hash"]: row for row in told}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A network evaluated by a pass of its own: its row and its store."""
    folder = tmp_path_factory.mktemp("own")
    store = Store(folder / "store")
    (row,) = run(folder, planned({}), store).values()
    return row, store


def bank_of(store, trial):
    return FeatureBank(store.folder("banks", bank_key(trial.spec, None).identity))


def test_a_row_from_the_bank_is_that_of_a_pass_of_its_own(tmp_path, own):
    row, store = own
    trials = planned({}, {"posthoc": {"method": "temperature"}})
    assert not store.holds("banks", bank_key(trials[0].spec, None).identity)
    found = run(tmp_path, trials, store)
    assert found[row["spec_hash"]] == row
    bank = bank_of(store, trials[0])
    assert bank.views == 0  # nobody asked for the features of train
    # Asked once more, with nothing to make and another folder of results, it is read.
    written = (bank.folder / "test.arrow").stat().st_mtime_ns
    again = run(tmp_path / "again", trials, store)
    assert again == found
    assert (bank.folder / "test.arrow").stat().st_mtime_ns == written


def test_logits_of_the_bank_are_those_of_the_network_to_the_bit(tmp_path, own):
    _, store = own
    spec = planned({})[0].spec
    development, test = load_development(spec.data, None), load_test(spec.data, None)
    trained = load_network(spec, store, CPU)
    passed = network_logits(trained, spec.data.info, development, test)
    key = bank_key(spec, None)
    bank = ensure_bank(
        FeatureBank, spec, key, store, lambda: (development, test), CPU, with_train=False
    )
    for name, split in bank_logits(bank, CPU).items():
        assert torch.equal(split.logits, passed[name].logits)
        assert torch.equal(split.labels, passed[name].labels)


@pytest.mark.parametrize("first", sample(["post-hoc", "heads", "search", "both"], 1))
def test_the_first_trial_computes_the_shared_outputs(tmp_path, first):
    """A bank gets what it lacks and loses nothing, and no number depends on the order."""
    store = Store(tmp_path / "store")
    head, scaled = planned({"head": HEAD}), planned({"posthoc": {"method": "temperature"}})
    if first == "both":
        found = run(tmp_path / "both", [*head, *scaled], store)
        assert bank_of(store, head[0]).views == 1
    else:
        order = [head, scaled] if first == "heads" else [scaled, head]
        is_search = first == "search"
        run(tmp_path / "first", order[0], store, is_search=is_search)
        assert bank_of(store, head[0]).has_test is not is_search
        found = run(tmp_path / "rest", [*head, *scaled], store)
        assert bank_of(store, head[0]).views == 1
    alone = Store(tmp_path / "alone")
    assert found == run(tmp_path / "together", [*scaled, *head], alone)


def test_a_store_that_cannot_be_written_is_read(tmp_path, own, monkeypatch):
    row, store = own
    trials = planned({}, {"posthoc": {"method": "temperature"}})
    whole = run(tmp_path / "whole", trials, store)
    # Root may write everywhere: the store is told what it would find out.
    monkeypatch.setattr(Store, "is_writable", property(lambda self: False))
    monkeypatch.setattr(Store, "lock", None)
    assert run(tmp_path / "read", trials, store) == whole
    assert whole[row["spec_hash"]] == row


POSTHOC = ({}, {"posthoc": {"method": "temperature"}}, {"posthoc": {"method": "ets"}})


@pytest.mark.parametrize("most", sample([1, None], 1))
def test_trials_of_one_head_train_it_once_and_have_the_rows_of_trials_alone(
    tmp_path, own, monkeypatch, most
):
    _, store = own
    seeds = (0, 1)
    trials = planned(
        *({"head": {**HEAD, "seed": seed}, **slot} for slot in POSTHOC for seed in seeds)
    )
    if most:  # parts of so many heads
        monkeypatch.setattr("tune_calib.engine.head_batch.HEAD_BATCH_BYTES", most)
    trained = []
    begin = HeadWorker._begin
    monkeypatch.setattr(
        HeadWorker, "_begin", lambda self, slots: (trained.extend(slots), begin(self, slots))
    )
    seconds = itertools.count()
    monkeypatch.setattr("tune_calib.tuning.work.workers.time.monotonic", seconds.__next__)
    together = run(tmp_path / "together", trials, store)
    assert [slot.seed for slot in trained] == list(seeds)
    # Each trial has its share of the seconds of all, which are counted readings of the clock.
    shares = read_table(tmp_path / "together", "trials")["own_s"].to_pylist()
    assert 0 < sum(shares) < next(seconds)
    assert shares == pytest.approx([sum(shares) / len(trials)] * len(trials))
    sizes = read_table(tmp_path / "together", "trials")["population"].to_pylist()
    assert sizes == [len(seeds)] * len(trials)
    monkeypatch.undo()
    for trial in trials:
        (alone,) = run(tmp_path / trial.spec.hash, [trial], store).values()
        assert together[trial.spec.hash] == alone


@pytest.mark.parametrize(
    ("weight_decay", "epochs"), [(1e10, 1), (1e30, 0)]
)  # the weights grow 1e20-fold or 1e40-fold with each step, of which an epoch has one
def test_the_curves_of_a_diverged_head_end_before_it_diverged(weight_decay, epochs, tmp_path, own):
    _, store = own
    given = {"epochs": 3, "lr": 1e10, "batch_size": 2000, "clip_grad_norm": 1e-12}
    head = {**HEAD, **given, "weight_decay": weight_decay}
    (row,) = run(tmp_path, planned({"head": head}), store).values()
    assert (row["status"], row["epoch"]) == ("diverged", epochs + 1)
    curves = read_table(tmp_path, "curves").to_pylist()
    assert {point["epoch"] for point in curves} == set(range(1, epochs + 1))
    assert all(math.isfinite(point["value"]) for point in curves)
