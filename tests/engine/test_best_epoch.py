"""What is reported is the classifier that was judged best: every rule by every way to evaluate."""

import itertools
from dataclasses import replace
from typing import get_args

import pytest
import torch
from pydantic import ValidationError

from tests.support import CPU, sample, small_spec
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine import head_batch
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.evaluate import SplitLogits, bank_logits, evaluate_one
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import SELECTED_BY, NetworkTrainer
from tune_calib.engine.predict import predict
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import WATCHED
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec

RULES = get_args(HeadSlot.model_fields["select"].annotation)
EPOCHS = 4


def readings():
    """Every way in which a head method can be masked and evaluated, by its own options."""
    for name in METHODS:
        if METHODS[name].kind == "head":
            fields = METHODS[name].params.model_fields
            asked = [key for key in ("evaluation", "masking") if key in fields]
            choices = (get_args(fields[key].annotation) for key in asked)
            for values in itertools.product(*choices):
                yield name, dict(zip(asked, values, strict=True))


def is_refused(name, params):
    try:
        METHODS[name].params(**params)
    except ValidationError:
        return True
    return False


READINGS = [reading for reading in readings() if not is_refused(*reading)]


class MisleadingBank(FeatureBank):
    """Most labels of ``select`` are wrong, so that to learn more is not to be judged better."""

    def select(self):
        split = super().select()
        wrong = torch.arange(len(split.labels)) % 10 < 7
        return replace(split, labels=torch.where(wrong, 9 - split.labels, split.labels))


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """Features that a head can learn from, which those of the shared network hardly are."""
    network = {"epochs": 4, "batch_size": 16, "lr": 0.02, "clip_grad_norm": None}
    spec = TrialSpec.build(
        data={"train_fraction": 0.4},
        network={**network, "augment": "none", "loss_reduction": "mean"},
        head={"method": "retrain", "augment": "none"},
    )
    store = Store(tmp_path_factory.mktemp("store"))
    splits = load_development(spec.data, None), load_test(spec.data, None)
    run = NetworkTraining(spec, store, splits[0], CPU)
    while run.step() is not None:
        pass
    run.close()
    whole = ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), store, lambda: splits, CPU)
    return MisleadingBank(whole.folder)


def slots(name, params, rule, count, **more):
    """Heads of rates so far apart that they are best at different epochs."""
    rates = [0.1, 0.001, 0.02, 0.005, 0.05][:count]
    small = {"latent": 8, "mc_samples": 9}
    known = METHODS[name].params.model_fields
    params = {**{key: value for key, value in small.items() if key in known}, **params}
    common = {
        "epochs": EPOCHS,
        "select": rule,
        "optimizer": "adam",
        "batch_size": 32,
        "params": params,
        **more,
    }
    return [small_spec(method=name, seed=s, lr=r, **common).head for s, r in enumerate(rates)]


def copied(state):
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


@pytest.mark.parametrize(
    ("rule", "count"), sample([*((rule, 3) for rule in RULES), ("min_val_nll", 1)], 2)
)
@pytest.mark.parametrize(("name", "params"), sample(READINGS, 2), ids=str)
def test_the_reported_head_is_the_judged_one(name, params, rule, count, bank):
    trainer = HeadBatchTrainer(slots(name, params, rule, count), bank, 0, CPU)
    reports = list(trainer)
    logits = bank_logits(bank, trainer.device, trainer)
    for k in range(count):
        judged = reports[int(trainer.best_epoch[k])]
        own = {split: values.one(k) for split, values in logits.items()}
        reported = evaluate_one(own, None).metrics
        for metric in WATCHED:
            assert reported[f"select/{metric}"] == judged[f"select/{metric}"][k].item()
    is_last = trainer.best_epoch == EPOCHS - 1
    assert bool(is_last.all()) if rule == "last" else True


@pytest.mark.parametrize("rule", sample(RULES, 1))
@pytest.mark.parametrize(("name", "params"), sample(READINGS, 2), ids=str)
def test_predictions_and_restarts_between_epochs_change_nothing(name, params, rule, bank):
    heads = slots(name, params, rule, 2)
    uninterrupted = HeadBatchTrainer(heads, bank, 0, CPU)
    expected = list(uninterrupted)
    state, reports = None, []
    for _ in range(EPOCHS):
        trainer = HeadBatchTrainer(heads, bank, 0, CPU)
        if state is not None:
            trainer.load_state(state)
        reports.append(next(trainer))
        before = copied(trainer.state())
        trainer.predict(bank.select())
        state = copied(trainer.state())
        assert equal(state, before)
    assert all(equal(first, second) for first, second in zip(expected, reports, strict=True))
    assert torch.equal(trainer.best_epoch, uninterrupted.best_epoch)
    assert torch.equal(trainer.predict(bank.test()), uninterrupted.predict(bank.test()))


@pytest.mark.parametrize("rule", sample(RULES, 1))
@pytest.mark.parametrize(("name", "params"), sample(READINGS, 2), ids=str)
def test_a_head_does_not_depend_on_its_head_batch(name, params, rule, bank):
    heads = slots(name, params, rule, 5)
    batch = HeadBatchTrainer(heads, bank, 0, CPU)
    list(batch)
    for k in (0, 4) if rule == "min_val_nll" else (4,):
        alone = HeadBatchTrainer(heads[k : k + 1], bank, 0, CPU)
        list(alone)
        assert torch.equal(alone.predict(bank.test())[0], batch.predict(bank.test())[k])


@pytest.mark.parametrize("rule", sample([rule for rule in RULES if rule != "last"], 1))
@pytest.mark.parametrize(("name", "params"), sample(READINGS, 3), ids=str)
def test_the_best_state_of_a_head_may_lie_within_an_epoch(name, params, rule, bank, monkeypatch):
    judge, states = HeadBatchTrainer._judge, []

    def record(trainer):
        scores = judge(trainer)
        with torch.no_grad():
            states.append((scores, trainer.updates, head_batch.logits_of(trainer.method, test)))
        return scores

    test = bank.test().features
    by_epoch = list(HeadBatchTrainer(slots(name, params, rule, 3), bank, 0, CPU))
    monkeypatch.setattr(HeadBatchTrainer, "_judge", record)
    trainer = HeadBatchTrainer(slots(name, params, rule, 3, select_every=2), bank, 0, CPU)
    reports = list(trainer)
    # Training is not disturbed, and only the position of the best state is reported in addition.
    for report, plain in zip(reports, by_epoch, strict=True):
        assert equal({key: report[key] for key in report if key != "best_step"}, plain)
    updates = [updates for _, updates, _ in states]
    assert updates == [2, 4, 6, 7] * EPOCHS
    metric, sign = SELECTED_BY[rule]
    scores = sign * torch.stack([scores[metric] for scores, *_ in states])
    logits = trainer.predict(bank.test())
    for k, best in enumerate(scores.argmax(0).tolist()):
        epoch = best // 4
        assert int(trainer.best_epoch[k]) == epoch
        assert reports[epoch]["best_step"][k] == states[best][1]
        assert torch.equal(logits[k], states[best][2][k])
        for later in reports[epoch + 1 :]:
            assert later["best_step"][k] == 0


def test_a_head_judged_within_epochs_depends_on_neither_batch_nor_restarts(bank):
    heads = slots("mac_cal", {}, "min_val_nll", 3, select_every=4, batch_order="own")
    batch = HeadBatchTrainer(heads, bank, 0, CPU)
    reports = list(batch)
    alone = HeadBatchTrainer(heads[1:2], bank, 0, CPU)
    state = None
    for epoch in range(EPOCHS):
        if state is not None:
            alone = HeadBatchTrainer(heads[1:2], bank, 0, CPU)
            alone.load_state(state)
        report = next(alone)
        assert report["best_step"][0] == reports[epoch]["best_step"][1]
        state = copied(alone.state())
    assert torch.equal(alone.predict(bank.test())[0], batch.predict(bank.test())[1])


def test_states_within_an_epoch_are_judged_only_where_select_chooses():
    with pytest.raises(UserError, match="select_every needs a rule"):
        small_spec(method="retrain", select_every=5)
    assert "select_every" not in small_spec(method="retrain").head.model_dump()


@pytest.mark.parametrize(("name", "params"), sample(READINGS, 4), ids=str)
def test_a_sample_does_not_depend_on_how_its_split_is_cut(name, params, bank, monkeypatch):
    trainer = HeadBatchTrainer(slots(name, params, "last", 2), bank, 0, CPU)
    next(trainer)
    whole = trainer.predict(bank.test())
    for size in (37, 256, 300, whole.shape[1] - 1):  # the last leaves a part of one sample
        monkeypatch.setattr(head_batch, "PASS_BATCH", size)
        assert torch.allclose(trainer.predict(bank.test()), whole, atol=1e-5), size


def test_no_two_samples_have_the_same_noise(bank):
    trainer = HeadBatchTrainer(slots("vtst", {}, "last", 2), bank, 0, CPU)
    like = torch.zeros(2, 9000, 8)
    noise = torch.cat([trainer.method.noise_at(0, draw, like) for draw in range(2)])
    assert len(noise.flatten(0, 1).unique(dim=0)) == 4 * 9000
    assert torch.equal(trainer.method.noise_at(4100, 1, like[:, :77]), noise[2:, 4100:4177])


NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]
SELECTING = [rule for rule in RULES if rule != "last"]


@pytest.mark.parametrize(
    ("name", "rule"),
    sample(
        dict.fromkeys(
            [*(("ce", rule) for rule in SELECTING), *zip(NETWORKS, itertools.cycle(SELECTING))]
        ),
        3,
    ),
)
def test_the_reported_network_is_the_judged_one(name, rule):
    check_the_reported_network(name, rule)


@pytest.mark.slow
@pytest.mark.parametrize("rule", SELECTING)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_reported_network_is_the_judged_one_by_every_rule(name, rule):
    check_the_reported_network(name, rule)


def check_the_reported_network(name, rule):
    slot = {"method": name, "epochs": 3, "select": rule, "augment": "none", "lr": 0.2}
    spec = TrialSpec.build(data={"train_fraction": 0.2}, network=slot)
    splits = load_development(spec.data, None)
    trainer = NetworkTrainer(spec, splits, CPU)
    reports = list(trainer)
    trainer.selected()
    logits = predict(trainer.method, trainer.network, splits.select.images, trainer.info)[1][None]
    told = SplitLogits(logits, splits.select.labels)
    reported = evaluate_one({"select": told, "calib": told}, None).metrics
    for metric in WATCHED:
        judged = reports[trainer.best.epoch][f"select/{metric}"]
        assert reported[f"select/{metric}"] == pytest.approx(judged, rel=1e-12)


@pytest.mark.parametrize("rule", SELECTING)
def test_the_first_of_equal_epochs_is_selected_for_heads_and_networks(rule, bank):
    heads = HeadBatchTrainer(slots("retrain", {}, rule, 2), bank, 0, CPU)
    network = {"epochs": 3, "select": rule, "augment": "none"}
    spec = TrialSpec.build(data={"train_fraction": 0.2}, network=network)
    trainer = NetworkTrainer(spec, load_development(spec.data, None), CPU)
    # The head of index 1 improves in the second epoch.
    for epoch, accuracies in enumerate([(0.5, 0.5), (0.5, 0.75), (0.5, 0.75)]):
        heads.epoch = trainer.epoch = epoch
        accuracy = torch.tensor(accuracies, dtype=torch.float64)
        losses = ("select/nll", "select/refined_nll")
        heads._store_best({"select/accuracy": accuracy, **dict.fromkeys(losses, 1 - accuracy)})
        report = dict.fromkeys(losses, 1 - accuracies[1])
        trainer._store_best({"select/accuracy": accuracies[1], **report})
    assert heads.best_epoch.tolist() == [0, 1]
    assert trainer.best.epoch == 1
