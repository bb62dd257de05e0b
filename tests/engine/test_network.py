import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy

from tests.support import CPU, sample
from tune_calib.data.augment import normalise
from tune_calib.data.splits import load_development
from tune_calib.engine import artifacts
from tune_calib.engine import network as engine
from tune_calib.engine.artifacts import NetworkTraining
from tune_calib.engine.network import NetworkTrainer, build
from tune_calib.engine.predict import predict
from tune_calib.engine.tensors import read_tensors
from tune_calib.errors import DivergedError
from tune_calib.files.store import Store, artifact_manifest, read_or_remove
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]
DEVELOPMENT = {}


def trainer(**network) -> NetworkTrainer:
    spec = TrialSpec.build(
        data={"train_fraction": 0.3}, network={"epochs": 3, "batch_size": 64, **network}
    )
    splits = DEVELOPMENT.setdefault(0, load_development(spec.data, None))
    return NetworkTrainer(spec, splits, CPU)


def weights(trained: NetworkTrainer) -> dict[str, torch.Tensor]:
    return trained.selected()


@pytest.mark.parametrize("method", sample(NETWORKS, 2))
def test_a_network_learns(method):
    reports = list(trainer(method=method, lr=0.02))
    # The loss of CRL grows with the history that it ranks by, and BalCAL moves its shares.
    first, last = reports[0], reports[-1]
    assert any(last[name] < first[name] for name in ("train/loss", "select/nll"))
    assert 0 <= reports[-1]["select/ece"] <= 1


def test_the_seed_decides_everything_and_the_global_state_nothing():
    torch.manual_seed(1)
    first = weights_after(seed=5)
    torch.manual_seed(2)
    assert all(torch.equal(a, b) for a, b in zip(first, weights_after(seed=5), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, weights_after(seed=6), strict=True))


def weights_after(seed):
    trained = trainer(seed=seed, epochs=1)
    list(trained)
    return list(weights(trained).values())


def test_sum_reduction_without_clipping_is_a_learning_rate_times_the_batch():
    common = {"clip_grad_norm": None, "weight_decay": 0.0, "epochs": 1, "drop_last": True}
    summed = trainer(loss_reduction="sum", lr=1e-3 / 64, **common)
    mean = trainer(loss_reduction="mean", lr=1e-3, **common)
    list(summed), list(mean)
    for a, b in zip(weights(summed).values(), weights(mean).values(), strict=True):
        assert torch.allclose(a.float(), b.float(), atol=1e-4)


def test_a_loss_that_is_not_finite_raises():
    with pytest.raises(DivergedError, match="epoch 1"):
        list(trainer(lr=1e30, clip_grad_norm=None))


def test_the_epoch_of_least_refined_nll_is_that_of_scipy():
    run = trainer(select="min_refined_nll", epochs=3)
    labels, refined = run.select.labels, []
    for report in run:
        logits = predict(run.method, run.network, run.select.images, run.info)[1].double()
        fitted = minimize_scalar(
            lambda log_t, logits=logits: cross_entropy(logits / np.exp(log_t), labels).item(),
            bounds=(-5, 5),
        )
        assert report["select/refined_nll"] == pytest.approx(fitted.fun, abs=2e-5)
        assert report["select/refined_nll"] < report["select/nll"]
        refined.append(fitted.fun)
    assert run.best.epoch == int(np.argmin(refined))


def test_the_last_epochs_are_not_augmented():
    def losses(**network):
        return [report["train/loss"] for report in trainer(epochs=2, **network)]

    augmented, plain, first = losses(), losses(augment="none"), losses(augment_until=0.5)
    assert losses(augment_until=0.2) == plain
    assert first[0] == augmented[0] != plain[0]
    assert first[1] != augmented[1]


def test_seed_and_epoch_decide_how_images_are_augmented(monkeypatch):
    drawn = []

    def noting(images, order, padding, flip, chance, spare):
        drawn.append(chance.initial_seed())
        return batches_of(images, order[:1], padding, flip, chance, spare)

    batches_of = engine.batches_of
    monkeypatch.setattr(engine, "batches_of", noting)
    list(trainer(seed=5, epochs=2)), list(trainer(seed=6, epochs=1))
    assert len(set(drawn)) == 3


def test_a_resumed_training_knows_its_best_epoch():
    first, second = (trainer(select="best_val_acc") for _ in range(2))
    next(first)
    second.load_state(*first.state())
    assert (second.best.score, second.best.epoch) == (first.best.score, 0)
    assert first.best.score > 0


def test_the_trainer_never_sees_test():
    run = trainer()
    held = [value for value in vars(run).values() if hasattr(value, "test")]
    assert held == []
    assert math.isinf(run.best.score)


class _Clock:
    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_a_checkpoint_is_written_every_30_s_and_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "time", clock := _Clock())
    spec = TrialSpec.build(data={"train_fraction": 0.1}, network={"epochs": 5})
    run = NetworkTraining(spec, Store(tmp_path), load_development(spec.data, None), CPU)
    stored = []
    for clock.seconds in (0, 29, 30, 59, 59):
        run.step()
        manifest = read_or_remove(run.checkpoint, artifact_manifest)
        stored.append(manifest and manifest["epoch"])
    assert stored == [None, None, 3, 3, 5]
    assert run.step() is None
    assert not run.checkpoint.exists()
    run.close()


@pytest.mark.parametrize(("interval", "epochs"), [(0, 2), (10**9, 0)])
def test_a_training_that_is_killed_repeats_the_epochs_after_its_checkpoint(
    interval, epochs, tmp_path, monkeypatch
):
    monkeypatch.setattr(artifacts, "CHECKPOINT_S", interval)
    slot = {"epochs": 3, "method": "fedlas_ls"}
    spec = TrialSpec.build(data={"train_fraction": 0.1}, network=slot)
    splits, records = load_development(spec.data, None), []
    for name, killed_after in (("killed", 2), ("whole", 0)):
        store = Store(tmp_path / name)
        if killed_after:
            run = NetworkTraining(spec, store, splits, CPU)
            for _ in range(killed_after):
                run.step()
            run.close()
        run = NetworkTraining(spec, store, splits, CPU)
        assert len(run.history) == (epochs if killed_after else 0)
        while run.step() is not None:
            pass
        run.close()
        records.append((read_tensors(run.artifact)[0], run.history))
        records[-1][0]["samples"] = read_tensors(store.folder("samples", spec.network_id) / "0003")[
            0
        ]["train.indicator"]
    (weights, history), (others, history_of_whole) = records
    assert history == history_of_whole
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_images_that_are_evaluated_in_parts_keep_their_outputs():
    spec = TrialSpec.build(
        data={"dataset": "cifar10"}, network={"method": "ce", "backbone": "resnet8"}
    )
    network, method = build(spec, samples=1)
    images = torch.randint(256, (100, 3, 32, 32), dtype=torch.uint8)
    features, logits = predict(method, network, images, spec.data.info)
    with torch.no_grad():
        output = method(network, normalise(images, spec.data.info))
    assert torch.allclose(features, output.features, atol=1e-5)
    assert torch.allclose(logits, output.logits, atol=1e-5)


def test_the_selected_epoch_is_the_best_on_select():
    run = trainer(select="best_val_acc", epochs=3)
    reports = list(run)
    best = max(report["select/accuracy"] for report in reports)
    assert run.best.score == best
    assert reports[run.best.epoch]["select/accuracy"] == best
