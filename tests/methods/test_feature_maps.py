"""Maps that read features: their formulas, and that they get the features of the right samples."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

import tune_calib
from tests.classifiers import OF_FEATURES, run_trials, spec_of
from tests.imports.files import features as drawn_features
from tests.imports.files import head, outputs, write
from tests.support import CPU, here
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import load_network
from tune_calib.engine.bank import draw_splits
from tune_calib.engine.classifier import ensure_classifier, train_again
from tune_calib.engine.evaluate import SplitLogits, bank_logits, evaluate_one, network_logits
from tune_calib.errors import UserError
from tune_calib.library.calibrated import CalibratedNetwork
from tune_calib.methods import Fit, FittedAlone
from tune_calib.methods.dac import brier_score, nearest, unit
from tune_calib.metrics.summary import evaluate
from tune_calib.results.tables import read_table
from tune_calib.spec.methods import METHODS, MethodInfo
from tune_calib.spec.slots.base import PostHocSlot
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.workers import NetworkWorker


def drawn(samples, classes=4, width=3, seed=0):
    """Logits that are more over-confident the longer the second of the features, and labels."""
    chance = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=chance)
    labels = torch.multinomial(logits.softmax(1), 1, generator=chance).squeeze(1)
    features = torch.randn(samples, width, generator=chance)
    spread = features.norm(dim=1) / features.norm(dim=1).mean()
    return (
        (1 + 2 * spread)[:, None] * logits,
        labels,
        torch.cat([features, 1 + 0 * labels[:, None]], 1),
    )


def fitted(name, logits, labels, features, **settings):
    info = METHODS[name]
    transform = info.implementation(info.params(**settings))
    transform.fit(logits[None], labels, features)
    return transform, {flag for flag, is_raised in transform.flags().items() if bool(is_raised)}


def lengths(features, neighbours):
    """The distances of unit vectors, one by one, without those of equal ones."""
    rows = [[float(x) for x in vector / np.linalg.norm(vector)] for vector in features.numpy()]
    others = [[float(x) for x in vector / np.linalg.norm(vector)] for vector in neighbours.numpy()]
    distances = []
    for row in rows:
        squares = [sum((x - y) ** 2 for x, y in zip(row, other, strict=True)) for other in others]
        distances.append(sorted(square**0.5 for square in squares if square > 1e-12))
    return distances


def test_distances_are_those_to_the_nearest_other_samples():
    features, neighbours = drawn(7)[2], drawn(11, seed=1)[2]
    neighbours[4] = features[2]
    for count in (1, 3, 50):
        distances = nearest(unit(features), unit(neighbours), count)
        assert distances.shape == (7, min(count, 11))
        for row, expected in zip(distances, lengths(features, neighbours), strict=True):
            expected = [*expected, 0.0][: len(row)]
            torch.testing.assert_close(row, torch.tensor(expected).double(), rtol=0, atol=1e-6)


def test_dac_divides_by_a_linear_function_of_the_distance():
    calib, test = drawn(200), drawn(31, seed=1)
    transform, _ = fitted("dac", *calib, neighbours=5)
    slope, intercept = (float(transform.fitted()[name]) for name in ("slope", "intercept"))
    assert slope > 0
    distances = [row[4] for row in lengths(test[2], calib[2])]
    divisors = torch.tensor([slope * distance + intercept for distance in distances])
    lowest = float(transform.state()["lowest"])
    changed = transform.transform(test[0][None].double(), test[2])[0]
    expected = test[0].double() / divisors.double().clamp_min(lowest)[:, None]
    torch.testing.assert_close(changed, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_no_other_optimiser_finds_a_lower_brier_score(seed):
    logits, labels, features = drawn(200, seed=seed)
    transform, flags = fitted("dac", logits, labels, features)
    assert "posthoc_unconverged" not in flags
    logits, state = logits.double(), transform.state()
    temperature = 100 * float(state["lowest"])
    distances = nearest(unit(features), unit(features), 10).amax(1)

    def objective(weights):
        slope, intercept = torch.from_numpy(np.abs(weights[:1])), torch.from_numpy(weights[1:])
        weights = torch.cat([slope, intercept])
        return float(brier_score(logits / temperature, labels, distances, weights))

    points = [(slope, intercept) for slope in (0, 1, 3, 10) for intercept in (-2, 0, 1, 3)]
    minima = [minimize(objective, point, method="Nelder-Mead").fun for point in points]
    assert float(transform.fitted()["objective"]) <= min(minima) + 1e-6


def test_procal_is_isotonic_regression_in_each_group():
    calib, test = drawn(203), drawn(57, seed=1)
    transform, _ = fitted("procal", *calib, neighbours=4, groups=3)
    of_calib, of_test = (
        np.array([np.mean(row[:4]) for row in lengths(split[2], calib[2])])
        for split in (calib, test)
    )
    edges = np.sort(of_calib)[[203 // 3, 2 * 203 // 3]]
    places = [np.searchsorted(edges, d + 1e-9, "right") for d in (of_calib, of_test)]
    assert np.bincount(places[0]).tolist() == [67, 68, 68]
    confidence, predicted = calib[0].double().softmax(1).max(1)
    tested = test[0].double().softmax(1).amax(1)
    changed = transform.transform(test[0][None].double(), test[2])[0]
    values = changed.gather(1, test[0].argmax(1, keepdim=True))[:, 0].exp()
    compared = 0
    for group in range(3):
        is_in, is_tested = places[0] == group, places[1] == group
        curve = IsotonicRegression(out_of_bounds="clip")
        curve.fit(confidence[is_in], (predicted == calib[1])[is_in].double())
        expected = curve.predict(tested[is_tested])
        is_free = (expected > 0.55) & (expected < 1)  # where the second class is below it anyway
        np.testing.assert_allclose(values[is_tested][is_free], expected[is_free], atol=1e-5)
        compared += is_free.sum()
    assert compared > 20


def hard(kind):
    logits, labels, features = drawn(100, classes=2 if kind == "two classes" else 5)
    match kind:
        case "a class missing":
            is_present = labels != 0
            logits, labels, features = logits[is_present], labels[is_present], features[is_present]
        case "separable":
            labels = logits.argmax(1)
        case "ties":
            logits, features = logits.round(), features.round()
        case "equal features":
            features = torch.ones_like(features)
        case "zeros as features":
            features = torch.zeros_like(features)
        case "one sample":
            logits, labels, features = logits[:1], labels[:1], features[:1]
        case "large logits":
            logits = 1e4 * logits
    return logits, labels, features


KINDS = [
    "two classes", "a class missing", "hundred samples", "separable", "ties", "equal features",
    "zeros as features", "one sample", "large logits",
]  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OF_FEATURES)
def test_hard_inputs_give_finite_numbers_and_keep_the_accuracy(name, kind):
    logits, labels, features = hard(kind)
    transform, flags = fitted(name, logits, labels, features)
    assert all(value.isfinite().all() for value in transform.fitted().values())
    others = drawn(30, logits.shape[1], seed=1)
    for rows, columns in ((logits, features), (others[0], others[2])):
        changed = transform.transform(rows[None], columns)[0]
        assert changed.isfinite().all()
        assert torch.equal(changed.argmax(1), rows.argmax(1))
    if name == "dac" and kind in ("separable", "one sample"):
        assert "temperature_bound" in flags


class Traced(FittedAlone):
    """A map of features alone, whose state and results show which samples they are of."""

    reads_features = True

    def fit_one(self, logits, labels, features):
        return Fit({"mean": features.mean(0)}, {"first": float(features[0, 0])})

    def apply(self, logits, state, features):
        return logits + (features - state["mean"])[:, : logits.shape[1]]


@pytest.fixture
def traced(monkeypatch):
    info = MethodInfo("traced", "traced", "x", 2000, "x", Traced, keeps_accuracy=False)
    monkeypatch.setitem(METHODS._records, "traced", info)
    monkeypatch.setitem(METHODS._origins, "traced", None)
    return PostHocSlot.build(method="traced", params={})


def split_of(samples, seed):
    logits, labels, features = drawn(samples, seed=seed)
    return SplitLogits(logits[None], labels, features=10 * seed + features)


def test_a_map_gets_features_of_calib_to_fit_and_those_of_each_split_to_transform(traced):
    splits = {"select": split_of(40, 1), "calib": split_of(50, 2), "test": split_of(60, 3)}
    evaluation = evaluate_one(splits, traced)
    mean = splits["calib"].features.double().mean(0)
    torch.testing.assert_close(evaluation.transform.state()["mean"][0], mean)
    for name in ("select", "test"):
        split = splits[name]
        moved = split.logits[0].double() + split.features.double() - mean
        expected = evaluate(moved, split.labels)
        assert evaluation.metrics[f"{name}/nll"] == pytest.approx(float(expected["nll"]), rel=1e-9)


def test_draws_of_select_and_calib_keep_samples_and_features_together(traced):
    spec = TrialSpec.build(data={"split_seed": 3}, network={})
    splits = {"select": split_of(40, 1), "calib": split_of(50, 2)}
    for name, split in splits.items():
        numbers = split.labels[:, None] + torch.zeros(1, 4)
        splits[name] = replace(split, features=numbers, labels=split.labels)
    for split in draw_splits(splits, spec).values():
        assert torch.equal(split.features[:, 0], split.labels.float())
        assert split.logits.shape[1] == len(split.features)


def test_cross_validation_fits_and_applies_to_the_features_of_each_fold(traced):
    logits, labels, features = drawn(100)
    seen = []

    class Recorded(Traced):
        def fit_one(self, logits, labels, features):
            seen.append(("fit", logits, features))
            return super().fit_one(logits, labels, features)

        def fit_fold(self, logits, labels, full_fit, features):
            seen.append(("fold", logits, features))
            return super().fit_fold(logits, labels, full_fit, features)

        def apply(self, logits, state, features):
            seen.append(("apply", logits, features))
            return super().apply(logits, state, features)

    Recorded(METHODS["traced"].params()).fit(logits[None], labels, features)
    rows = {tuple(row.tolist()): own for row, own in zip(logits, features, strict=True)}
    assert [kind for kind, *_ in seen] == ["fit", *["fold", "fit", "apply"] * 5]
    for _, part, own in seen:
        for row, columns in zip(part.float(), own.float(), strict=True):
            assert torch.equal(rows[tuple(row.tolist())], columns)


def test_features_of_a_pass_over_the_images_are_those_of_the_bank(bank, trained):
    spec = spec_of()
    network = load_network(spec, trained, CPU)
    splits = load_development(spec.data, None), load_test(spec.data, None)
    passed = network_logits(network, spec.data.info, *splits)
    for name, split in bank_logits(bank, CPU).items():
        assert torch.equal(split.features, passed[name].features)
        assert len({len(split.features) for split in passed.values()}) > 1


@pytest.mark.parametrize("name", OF_FEATURES)
def test_a_trial_its_stored_classifier_and_a_loaded_network_agree(name, bank, trained, tmp_path):
    spec = spec_of(posthoc=name)
    run_trials(NetworkWorker, [spec_of(), spec], trained, tmp_path)
    (row,) = (r for r in read_table(tmp_path, "trials").to_pylist() if r["posthoc_method"] == name)
    assert row["status"] == "done"
    development = lambda: load_development(spec.data, None)  # noqa: E731
    stored = ensure_classifier(spec, trained, development, CPU)
    for classifier in (stored, train_again(spec, trained, development, CPU)):
        logits = classifier.logits(bank.test())
        value = float(evaluate(logits.logits[0], bank.test().labels)["nll"])
        assert value == pytest.approx(row["test/nll"], rel=1e-9)
    network = CalibratedNetwork(spec, stored, load_network(spec, trained, CPU))
    images = load_test(spec.data, None).images
    torch.testing.assert_close(network.logits(images), logits.logits[0], rtol=1e-4, atol=1e-4)
    of_features = network.from_features(bank.test().features)
    torch.testing.assert_close(of_features, logits.logits[0].softmax(1), rtol=1e-4, atol=1e-4)
    with pytest.raises(UserError, match="this classifier also reads features"):
        network.from_logits(bank.test().logits)


def test_without_features_a_map_is_refused_at_the_door():
    network = {"seed": 0}
    member = TrialSpec.build(network=network).network.model_dump(mode="json")
    pool = {"members": [member, {**member, "seed": 1}], "average": "probabilities"}
    for slots in (
        {"network": {**network, "pool": pool}, "posthoc": {"method": "dac"}},
        {"network": {**network, "pool": {**pool, "posthoc": {"method": "dac", "params": {}}}}},
    ):
        with pytest.raises(UserError, match="'dac' reads features of one network, which pools"):
            TrialSpec.build(**slots)


@pytest.mark.parametrize("has_features", [False, True])
def test_imports_without_features_leave_these_maps_out(has_features, tmp_path):
    words = ["x", "--store", tmp_path / "store"]
    for seed, split in enumerate(("select", "calib", "test")):
        made = drawn_features if has_features else outputs
        path = write(tmp_path / f"{split}.npz", **made(60 + seed, seed=seed))
        words += [f"--{split}", path]
    if has_features:
        words += ["--head", write(tmp_path / "head.npz", **head())]
    assert here("import", *words).returncode == 0
    run = ["--imported", "x", "--store", tmp_path / "store", "--address", "none"]
    all_of_kind = here("compare", "--all", "posthoc", "--dry-run", *run, "--out", tmp_path / "a")
    assert all_of_kind.returncode == 0
    line = "they read features, which imported logits lack"
    text = " ".join((all_of_kind.stdout + all_of_kind.stderr).split())
    assert (line in text) == (not has_features)
    named = here("compare", "ce", "temperature", *OF_FEATURES, *run, "--out", tmp_path / "b")
    if has_features:
        assert named.returncode == 0, named.stderr
        rows = read_table(tmp_path / "b", "trials").to_pylist()
        assert {row["status"] for row in rows} == {"done"}
    else:
        assert named.returncode == 2
        assert "reads features of one network, which pools and imported" in named.stderr


@pytest.mark.parametrize("name", OF_FEATURES)
@pytest.mark.filterwarnings("ignore")
def test_estimators_take_features_and_say_where_they_are_missing(name):
    kind = getattr(tune_calib, METHODS[name].implementation.__name__)
    (logits, labels, features), test = drawn(200), drawn(31, seed=1)
    estimator = kind().fit(logits, labels, features=features)
    for call, given in ((kind().fit, (logits, labels)), (estimator.predict_proba, test[:1])):
        with pytest.raises(ValueError, match=f"{kind.__name__} reads features"):
            call(*given)
    transform, flags = fitted(name, logits, labels, features)
    probs = estimator.predict_proba(test[0], features=test[2])
    expected = transform.transform(test[0][None], test[2])[0].softmax(-1)
    torch.testing.assert_close(probs.float(), expected)
    assert set(estimator.flags_) == flags
    of_arrays = kind().fit(logits.numpy(), labels.numpy(), features=features.double().numpy())
    arrays = test[0].numpy(), test[2].numpy()
    array_probs = of_arrays.predict_proba(arrays[0], features=arrays[1])
    assert np.array_equal(array_probs, probs.numpy())
    assert np.array_equal(of_arrays.predict(arrays[0], features=arrays[1]), probs.argmax(1))
    again = pickle.loads(pickle.dumps(of_arrays))
    assert np.array_equal(again.predict_proba(arrays[0], features=arrays[1]), array_probs)
    weights = torch.arange(200) % 3
    rows = [part.repeat_interleave(weights, 0) for part in (logits, labels, features)]
    repeated = kind().fit(*rows[:2], features=rows[2])
    weighted = kind().fit(logits, labels, sample_weight=weights, features=features)
    torch.testing.assert_close(
        weighted.predict_proba(test[0], features=test[2]),
        repeated.predict_proba(test[0], features=test[2]),
    )
    for wrong, message in (
        (test[2][:30], "features of 30 samples for 31 logits"),
        (test[2][:, :2], r"features must be \(N, 4\) as in fit"),
        (test[2] * torch.nan, "features must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            estimator.predict_proba(test[0], features=wrong)
    with pytest.raises(ValueError, match="TemperatureScaling reads no features"):
        tune_calib.TemperatureScaling().fit(logits, labels, features=features)
