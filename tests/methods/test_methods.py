"""Every method of the registry has a record that the program and its readers can rely on."""

import pkgutil

import pytest
import torch

import tune_calib.methods
from tune_calib.methods._base import nll
from tune_calib.methods.temperature import TemperatureParams, TemperatureScaling
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.base import PostHocSlot


def test_every_file_of_methods_registers_something():
    files = {m.name for m in pkgutil.iter_modules(tune_calib.methods.__path__)}
    implementing = {METHODS[name].implementation.__module__.rpartition(".")[2] for name in METHODS}
    implementing.add("probmetrics")  # registers the calibrators of a library if it is installed
    assert implementing == {name for name in files if not name.startswith("_")}


def logits_and_labels(scale: float):
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 400, 5, generator=chance) * torch.tensor([2.0, 1.0])[:, None, None]
    labels = torch.multinomial(logits[0].softmax(-1), 1, generator=chance).squeeze(1)
    return logits * scale, labels


@pytest.mark.parametrize("scale", [0.2, 1.0, 8.0])
def test_the_temperature_is_the_minimum_of_the_nll(scale):
    logits, labels = logits_and_labels(scale)
    scaling = TemperatureScaling(TemperatureParams())
    scaling.fit(logits, labels)
    for k in range(2):
        best = float(scaling.state()["temperature"][k])

        def value(temperature, k=k):
            log_probs = (logits[k].double() / temperature).log_softmax(-1)
            return float(nll(log_probs[None], labels))

        assert value(best) <= min(value(best * (1 + step)) for step in (-1e-3, 1e-3))
    assert torch.equal(scaling.transform(logits).argmax(-1), logits.argmax(-1))


@pytest.mark.parametrize("scale", [2e-3, 1e9])
def test_temperatures_follow_the_scale_of_the_logits(scale):
    logits, labels = logits_and_labels(1.0)
    logits, labels = logits[:1, :150].double(), labels[:150]
    for method, params in (("temperature", {}), ("svs", {}), ("ets", {}), ("ets", {"loss": "nll"})):
        info = METHODS[method]
        temperatures = []
        for factor in (1.0, scale):
            transform = info.implementation(info.params(**params))
            transform.fit(factor * logits, labels)
            assert not transform.flags().get("temperature_bound", torch.tensor(False)).any()
            temperatures.append(float(transform.fitted()["temperature"]) / factor)
        assert temperatures[1] == pytest.approx(temperatures[0], rel=1e-3), method


@pytest.mark.parametrize("method", ["temperature", "svs", "ets"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_a_temperature_that_is_not_the_best_is_flagged(method, scale):
    logits, _ = logits_and_labels(scale)
    info = METHODS[method]
    for wrong in (logits.argmax(-1)[0], logits.argmin(-1)[0]):  # T falls, or rises, without end
        transform = info.implementation(info.params())
        transform.fit(logits[:1], wrong)
        assert transform.flags()["temperature_bound"].all()
    # As far as T goes, the probabilities are nearly uniform.
    probs = transform.transform(logits[:1]).softmax(-1)
    assert probs.max() < 0.6


def test_a_head_under_a_temperature_is_fitted_on_calib_alone(bank):
    from tune_calib.engine.evaluate import SplitLogits, evaluate_one

    splits = {"select": bank.select(), "calib": bank.calib(), "test": bank.test()}
    logits = {k: SplitLogits(8 * s.logits[None], s.labels) for k, s in splits.items()}
    plain = evaluate_one(logits, None)
    scaled = evaluate_one(logits, PostHocSlot(method="temperature"))
    assert scaled.metrics["test/accuracy"] == plain.metrics["test/accuracy"]
    assert scaled.metrics["test/nll"] < plain.metrics["test/nll"]
    changed = {**logits, "calib": SplitLogits(logits["calib"].logits / 3, splits["calib"].labels)}
    again = evaluate_one(changed, PostHocSlot(method="temperature"))
    ratio = scaled.fitted["temperature"] / again.fitted["temperature"]
    assert ratio == pytest.approx(3, rel=1e-4)
