"""The library in scikit-learn's manner: every post-hoc method, and heads on features."""

import functools
import inspect
import itertools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import tune_calib
from tests.classifiers import POSTHOC, TOLD, classifier_of, spec_of
from tests.support import sample
from tune_calib.engine.evaluate import SplitLogits, evaluate_one
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.errors import UserError
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import NEVER_BEST
from tune_calib.spec.slots.base import PostHocSlot

CPU = torch.device("cpu")


def of(name):
    return getattr(tune_calib, METHODS[name].implementation.__name__)


def drawn(classes, samples=400, seed=0):
    """Over-confident logits and labels."""
    chance = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(samples, classes, generator=chance)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=chance).squeeze(1)
    return logits, labels


def samples_for(name):
    return drawn(METHODS[name].classes or 5)


def fitted(estimator, *given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return estimator.fit(*given)


@pytest.mark.parametrize("name", sample(POSTHOC, 5))
def test_every_post_hoc_estimator_equals_its_trial(name):
    logits, labels = samples_for(name)
    calib, test = SplitLogits(logits[None, :200], labels[:200]), logits[200:]
    slot = PostHocSlot.build(method=name, params={})
    held_out = SplitLogits(test[None], labels[200:])
    trial = evaluate_one({"calib": calib, "select": held_out, "test": held_out}, slot)
    estimator = fitted(of(name)(), logits[:200], labels[:200])
    found = estimator.predict_proba(test)
    assert torch.equal(found, trial.transform.transform(test[None].double())[0].softmax(-1))
    assert found.dtype == torch.float64
    for record, value in trial.fitted.items():
        assert getattr(estimator, f"{record}_") == value
    assert set(estimator.flags_) == set(trial.flags) - set(NEVER_BEST)
    of_arrays = fitted(of(name)(), logits[:200].numpy(), labels[:200].numpy())
    probs = of_arrays.predict_proba(test.numpy())
    assert isinstance(probs, np.ndarray)
    assert np.array_equal(probs, found.numpy())
    assert np.array_equal(of_arrays.predict(test.numpy()), probs.argmax(1))
    assert 0 <= of_arrays.score(test.numpy(), labels[200:].numpy()) <= 1
    if METHODS[name].keeps_accuracy:
        assert torch.equal(estimator.predict(test), test.argmax(1))


@pytest.mark.parametrize("name", POSTHOC)
def test_every_estimator_keeps_the_conventions(name):
    estimator = of(name)()
    settings = METHODS[name].params.model_fields
    assert list(inspect.signature(of(name)).parameters) == list(settings)
    assert set(estimator.get_params()) == set(settings)
    assert all(setting in of(name).__doc__ for setting in settings)
    with pytest.raises(NotFittedError):
        estimator.predict_proba(np.zeros((2, 5)))
    logits, labels = samples_for(name)
    fitted(estimator, logits, labels)
    again = pickle.loads(pickle.dumps(estimator))
    assert torch.equal(again.predict_proba(logits), estimator.predict_proba(logits))
    with pytest.raises(NotFittedError):
        clone(estimator).predict_proba(logits)
    with pytest.raises(TypeError, match="has no setting 'nonsense'"):
        of(name)(nonsense=1)
    with pytest.raises(ValueError, match="has no setting 'nonsense'"):
        estimator.set_params(nonsense=1)


def test_a_setting_may_be_named_as_a_method_and_is_checked_by_fit():
    logits, labels = drawn(5)
    estimator = tune_calib.TemperatureScaling(fit="grid_nll")
    assert estimator.get_params() == {"fit": "grid_nll", "top_versus_all": False}
    tenths = 10 * estimator.fit(logits, labels).temperature_
    assert round(tenths, 6) == round(tenths)
    assert repr(estimator) == "TemperatureScaling(fit='grid_nll', top_versus_all=False)"
    converged = 10 * clone(estimator).set_params(fit="nll").fit(logits, labels).temperature_
    assert 0 < abs(converged - tenths) < 1
    with pytest.raises(UserError, match="fit"):
        tune_calib.TemperatureScaling(fit="lbfgs").fit(logits, labels)


@pytest.mark.parametrize("name", POSTHOC)
def test_probabilities_are_refused_as_logits(name):
    logits, labels = samples_for(name)
    probs = logits.softmax(1)
    for given in (probs, probs.bfloat16(), probs.double().numpy()):
        with pytest.raises(ValueError, match="logits look like probabilities"):
            of(name)().fit(given, labels)
    estimator = fitted(of(name)(), probs.log(), labels)
    for predict in (estimator.predict_proba, estimator.decision_function, estimator.predict):
        predict(probs.log())
        with pytest.raises(ValueError, match="logits look like probabilities"):
            predict(probs)
    # One row of logits may sum to 1 by chance.
    estimator.predict_proba(probs[:1])


@pytest.mark.parametrize("name", POSTHOC)
def test_whole_weights_count_a_sample_as_often_as_repeated_rows(name):
    logits, labels = drawn(METHODS[name].classes or 3, 100)
    counts = torch.randint(0, 4, (100,), generator=torch.Generator().manual_seed(1))
    rows, repeated = logits.repeat_interleave(counts, 0), labels.repeat_interleave(counts)
    estimator = of(name)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighted = clone(estimator).fit(logits, labels, sample_weight=counts).predict_proba(logits)
        expected = clone(estimator).fit(rows, repeated).predict_proba(logits)
    assert torch.allclose(weighted, expected, atol=1e-6), (weighted - expected).abs().max()


def test_other_weights_are_exact_where_losses_are_summed_and_refused_where_samples_are_counted():
    logits, labels = drawn(3)
    weights = torch.rand(400, generator=torch.Generator().manual_seed(0))
    found = tune_calib.TemperatureScaling().fit(logits, labels, sample_weight=weights)

    def loss(log_t):
        probs = (logits.double() / np.exp(log_t)).softmax(1)
        return log_loss(labels, probs, sample_weight=weights)

    best = minimize_scalar(loss, bounds=(-2, 3), method="bounded", options={"xatol": 1e-8}).x
    assert found.temperature_ == pytest.approx(np.exp(best), rel=1e-6)
    assert found.temperature_ != pytest.approx(
        tune_calib.TemperatureScaling().fit(logits, labels).temperature_, rel=1e-3
    )
    for estimator in (
        tune_calib.SplineCalibration(),
        tune_calib.TemperatureScaling(fit="grid_ece"),
    ):
        with pytest.raises(ValueError, match="counts samples, so sample_weight must be whole"):
            estimator.fit(logits, labels, sample_weight=weights)
    for wrong in (weights[1:], -weights, 0 * weights, weights / 0, weights[:, None].repeat(1, 2)):
        with pytest.raises(ValueError, match=r"(?i)sample.weight"):
            tune_calib.TemperatureScaling().fit(logits, labels, sample_weight=wrong)


def test_arrays_of_any_layout_give_the_same_numbers():
    logits, labels = (part.numpy() for part in drawn(3))
    expected = tune_calib.TemperatureScaling().fit(logits, labels).temperature_
    for rows, names in (
        (logits.astype(">f4"), labels.astype(">i8")),
        (logits[::-1], labels[::-1]),
        (np.asfortranarray(logits), labels.tolist()),
        (logits.astype(object), labels[:, None]),
        (logits.astype(np.longdouble), labels.astype(np.uint16)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataConversionWarning)
            found = tune_calib.TemperatureScaling().fit(rows, names)
        assert found.temperature_ == pytest.approx(expected, rel=1e-6)
        assert found.predict(rows).shape == (400,)
    with pytest.raises(ValueError, match="sparse input is not supported"):
        tune_calib.TemperatureScaling().fit(csr_matrix(logits), labels)


def test_labels_sorted_as_text_are_refused_unless_classes_are_passed():
    logits, labels = drawn(12, 1000)
    names = labels.numpy().astype(str)
    with pytest.raises(ValueError, match=r"in the order of their numbers; to keep them, give"):
        tune_calib.TemperatureScaling().fit(logits, names)
    plain = tune_calib.TemperatureScaling().fit(logits, labels)
    in_order = np.arange(12).astype(str)
    named = tune_calib.TemperatureScaling().fit(logits, names, classes=in_order)
    assert named.temperature_ == plain.temperature_
    assert named.predict(logits).tolist() == in_order[plain.predict(logits)].tolist()
    by_text = sorted(in_order)  # columns in the order of text are accepted
    columns = [int(name) for name in by_text]
    assert tune_calib.TemperatureScaling().fit(logits[:, columns], names).temperature_ == (
        pytest.approx(plain.temperature_)
    )


@pytest.mark.parametrize("shift", [1, -1])
def test_labels_that_count_from_another_number_are_refused(shift):
    logits, labels = drawn(5, 1000)
    is_kept = labels < 4 if shift == 1 else labels > 0
    logits, labels = logits[is_kept], labels[is_kept]
    way = "lowered by 1" if shift == 1 else "raised by 1"
    with pytest.raises(ValueError, match=f"if they are {way}"):
        tune_calib.TemperatureScaling().fit(logits, labels + shift)
    with pytest.raises(ValueError, match=f"if they are {way}"):
        tune_calib.calibration_report(logits, labels + shift)
    tune_calib.TemperatureScaling().fit(logits, labels)
    scaling = tune_calib.TemperatureScaling()
    for names, classes in ((labels.flip(0), 5), (labels + shift, range(5))):
        with pytest.warns(UserWarning, match="no better than chance"):
            scaling.fit(logits, names, classes=classes)


def test_probabilities_are_accepted_with_outputs_probs():
    logits, labels = drawn(4)
    probs = logits.softmax(1)
    by_logits = tune_calib.TemperatureScaling().fit(probs.log(), labels)
    by_probs = tune_calib.TemperatureScaling().fit(probs, labels, outputs="probs")
    assert by_probs.temperature_ == pytest.approx(by_logits.temperature_)
    assert torch.allclose(by_probs.predict_proba(probs), by_logits.predict_proba(probs.log()))
    with pytest.raises(ValueError, match="outputs must be"):
        tune_calib.TemperatureScaling().fit(logits, labels, outputs="scores")
    scores, two = logits[:, 1].sigmoid(), labels % 2
    by_probs = tune_calib.TemperatureScaling().fit(scores, two, outputs="probs")
    by_logits = tune_calib.TemperatureScaling().fit(logits[:, 1], two)
    assert by_probs.temperature_ == pytest.approx(by_logits.temperature_, rel=1e-4)


def test_flags_are_warnings():
    logits = 10 * torch.eye(5).repeat(4, 1)
    with pytest.warns(UserWarning, match="every sample of calib is classified correctly"):
        estimator = tune_calib.TemperatureScaling().fit(logits, logits.argmax(1))
    assert "temperature_bound" in estimator.flags_


LOGITS, LABELS = drawn(3, 30)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (LOGITS[None], LABELS, r"logits must be \(samples, numbers\), got shape \(1, 30, 3\)"),
        (LOGITS.where(LOGITS < 3, torch.nan), LABELS, "logits must be finite; "),
        (LOGITS, LABELS[:9], r"labels must be \(30,\), one per sample, got \(9,\)"),
        (LOGITS, LABELS.float(), "labels must be integers"),
        (LOGITS, torch.arange(30) % 4, "labels must be in 0 to 2, .* there are 4: 0, 1, 2, 3"),
    ],
)
@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_wrong_inputs_of_estimators_are_one_line(kind, logits, labels, message):
    if kind == "array":
        logits, labels = (x.numpy() if isinstance(x, torch.Tensor) else x for x in (logits, labels))
    with pytest.raises(ValueError, match=message) as refused:
        tune_calib.TemperatureScaling().fit(logits, labels)
    assert "\n" not in str(refused.value)


NAMES = np.array(["cat", "dog", "eel"])


@pytest.mark.parametrize(
    "names", [NAMES, NAMES.astype(object), np.array([3, 7, 20]), np.array([-1, 0, 1])]
)
def test_labels_may_have_any_names(names):
    plain = tune_calib.TemperatureScaling().fit(LOGITS.numpy(), LABELS.numpy())
    named = tune_calib.TemperatureScaling().fit(LOGITS.numpy(), names[LABELS])
    assert named.temperature_ == plain.temperature_
    assert named.classes_.tolist() == names.tolist()
    assert named.predict(LOGITS.numpy()).tolist() == names[plain.predict(LOGITS.numpy())].tolist()
    assert named.score(LOGITS.numpy(), names[LABELS]) == plain.score(LOGITS.numpy(), LABELS)
    predicted = named.predict(LOGITS)
    assert isinstance(predicted, torch.Tensor) == (names.dtype.kind == "i")
    with pytest.raises(ValueError, match="there are 2"):
        tune_calib.TemperatureScaling().fit(LOGITS, names[LABELS % 2])
    some = LABELS < 2
    few = tune_calib.TemperatureScaling().fit(LOGITS[some], names[LABELS[some]], classes=names)
    assert few.classes_.tolist() == names.tolist()
    head = tune_calib.RetrainedHead(epochs=2).fit(FEATURES, names[CLASSES % 3])
    own = tune_calib.RetrainedHead(epochs=2).fit(FEATURES, CLASSES % 3)
    assert torch.equal(head.decision_function(FEATURES), own.decision_function(FEATURES))
    assert list(head.predict(FEATURES)) == names[own.predict(FEATURES)].tolist()


def settings_of(spec):
    plain = spec.head.model_dump(mode="json", exclude={"views", "bn_mode", "augment", "plugin"})
    return {**plain.pop("params"), **plain}


@pytest.mark.parametrize(
    ("message", "rule"), sample(list(zip(TOLD, itertools.cycle(["last", "min_val_nll"]))), 1)
)
def test_a_head_has_the_numbers_of_a_trial_on_the_same_features(message, rule, bank):
    spec = spec_of(message, select=rule, seed=1)
    expected = classifier_of(spec, bank).logits(bank.test()).logits[0]
    head = tune_calib.RetrainedHead(**settings_of(spec))
    train, select, test = bank.train(), bank.select(), bank.test()
    head.fit(train.features, train.labels, (select.features, select.labels), bank.own_head())
    assert torch.equal(head.decision_function(test.features), expected)
    arrays = [(part.features.numpy(), part.labels.numpy()) for part in (train, select)]
    again = clone(head).fit(*arrays[0], select=arrays[1], own_head=bank.own_head())
    probs = again.predict_proba(test.features.numpy())
    assert np.array_equal(probs, expected.softmax(-1).numpy())
    assert again.epoch_ == head.epoch_
    assert len(head.history_["train/loss"]) == spec.head.epochs
    assert min(head.history_["select/nll"]) > 0
    assert torch.equal(
        pickle.loads(pickle.dumps(head)).predict_proba(test.features), torch.from_numpy(probs)
    )


def test_a_head_that_continues_needs_the_head_of_the_network(bank):
    train, select = bank.train(), bank.select()
    held_out = (select.features, select.labels)
    trainer = HeadBatchTrainer(
        [spec_of("retrain", params={"start": "continued"}).head], bank, 0, CPU
    )
    list(trainer)
    head = tune_calib.RetrainedHead("retrain", start="continued", epochs=3, lr=0.05)
    with pytest.raises(ValueError, match="start=continued needs own_head"):
        head.fit(train.features, train.labels)
    head.fit(train.features, train.labels, own_head=bank.own_head())
    assert not any(name.startswith("select/") for name in head.history_)
    assert torch.equal(head.decision_function(select.features), trainer.predict(select)[0].double())
    ratio = tune_calib.RetrainedHead("mac_cal", gamma="val_ratio", epochs=1)
    with pytest.raises(ValueError, match="val_ratio needs own_head"):
        ratio.fit(train.features, train.labels, held_out)
    with pytest.raises(ValueError, match=r"val_ratio needs .* select=\(features, labels\)"):
        ratio.fit(train.features, train.labels, own_head=bank.own_head())
    ratio.fit(train.features, train.labels, held_out, bank.own_head())
    chooses = tune_calib.RetrainedHead("retrain", select="best_val_acc", epochs=1)
    with pytest.raises(ValueError, match="select=best_val_acc selects an epoch"):
        chooses.fit(train.features, train.labels)


FEATURES = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(40) % 4


@pytest.mark.parametrize(
    ("settings", "changed", "message"),
    [
        ({"method": "ce"}, {}, "is a network method, not a head method"),
        ({"gama": 1}, {}, "has no setting 'gama'"),
        ({"lr": 1e30}, {}, "is not finite: take a smaller lr"),
        ({}, {"labels": 0 * CLASSES}, "labels have only one class"),
        ({}, {"select": (FEATURES[:, :5], CLASSES)}, r"must be \(N, 6\) as in fit"),
        ({}, {"own_head": (FEATURES[:4, :5], torch.zeros(4))}, r"own_head must be weight \(C, 6\)"),
    ],
)
def test_unusable_inputs_of_a_head_are_one_line(settings, changed, message):
    names = {"features": "X", "labels": "y"}
    changed = {names.get(name, name): value for name, value in changed.items()}
    arguments = {"X": FEATURES, "y": CLASSES, **changed}
    with pytest.raises((ValueError, UserError, TypeError), match=message) as refused:
        tune_calib.RetrainedHead(**{"epochs": 2, **settings}).fit(**arguments)
    assert "\n" not in str(refused.value)


def test_a_data_frame_with_other_columns_than_in_fit_is_refused():
    logits, labels = (part.numpy() for part in drawn(4))
    frame = pd.DataFrame(logits, columns=[*"dbca"])
    other = frame[[*"abcd"]]
    identity = torch.nn.Linear(4, 4)
    with torch.no_grad():
        identity.weight.copy_(torch.eye(4))
        identity.bias.zero_()
    for estimator in (
        tune_calib.TemperatureScaling(),
        tune_calib.CalibratedClassifier(identity),
        tune_calib.RetrainedHead(epochs=1),
    ):
        estimator.fit(frame, labels)
        assert estimator.feature_names_in_.tolist() == [*"dbca"]
        assert estimator.predict_proba(frame).shape == (400, 4)
        for predict in (estimator.predict, estimator.predict_proba):
            with pytest.raises(ValueError, match="feature names should match"):
                predict(other)
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.score(other, labels)
    head = tune_calib.RetrainedHead(epochs=1, select="best_val_acc")
    with pytest.raises(ValueError, match="feature names should match"):
        head.fit(frame, labels, select=(other, labels))


@pytest.mark.parametrize("names", [["eel", "cat", "dog"], [2, 0, 1], ["2", "0", "1"]])
def test_columns_that_are_named_after_the_classes_give_their_order(names):
    logits, numbers = (part.numpy() for part in drawn(3))
    frame = pd.DataFrame(logits, columns=names)
    classes = np.array([int(name) if str(name).isdigit() else name for name in names])
    labels = classes[numbers]
    scaling = tune_calib.TemperatureScaling().fit(frame, labels)
    expected = tune_calib.TemperatureScaling().fit(logits, labels, classes=classes)
    assert scaling.temperature_ == expected.temperature_
    assert scaling.classes_.tolist() == classes.tolist()
    assert scaling.score(frame, labels) == (logits.argmax(1) == numbers).mean()
    report = tune_calib.calibration_report(frame, labels, classes=classes)
    assert report.values["accuracy"] == scaling.score(frame, labels)
    for call in (tune_calib.TemperatureScaling().fit, tune_calib.calibration_report):
        with pytest.raises(ValueError, match=f"named after the classes, in the order {names[0]}"):
            call(frame, labels, classes=np.sort(classes))
    with pytest.raises(ValueError, match=r"but the classes are|feature names"):
        scaling.predict(frame[sorted(names)])


def hidden(values):
    return np.ma.masked_array(values, mask=np.arange(values.size).reshape(values.shape) == 5)


def test_masked_values_are_refused_at_every_entrance():
    logits, labels = (part.numpy() for part in drawn(3))
    module = torch.nn.Identity()
    scaling = tune_calib.TemperatureScaling().fit(np.ma.masked_array(logits), labels)
    head = tune_calib.RetrainedHead(epochs=1).fit(logits, labels)
    of_module = tune_calib.CalibratedClassifier(module).fit(logits, labels)
    of_classifier = tune_calib.CalibratedClassifier(LogisticRegression().fit(logits, labels))
    weights = np.ones(400)
    own_head = np.eye(3), hidden(np.zeros(6))[3:]
    calls = [
        (estimator.fit, rows, names)
        for estimator in (scaling, head, of_module, of_classifier)
        for rows, names in ((hidden(logits), labels), (logits, hidden(labels)))
    ]
    calls += [
        (scaling.predict, hidden(logits)),
        (tune_calib.calibration_report, list(hidden(logits)), labels),
        (functools.partial(scaling.fit, sample_weight=hidden(weights)), logits, labels),
        (functools.partial(head.fit, own_head=own_head), logits, labels),
    ]
    for call, *values in calls:
        with pytest.raises(ValueError, match="has masked values"):
            call(*values)


@pytest.mark.filterwarnings("ignore:.*no better than chance")
def test_labels_that_are_true_or_false_belong_to_two_classes():
    logits, labels = drawn(3)
    names = labels.numpy() > 0
    for call in (tune_calib.TemperatureScaling().fit, tune_calib.calibration_report):
        with pytest.raises(ValueError, match=r"there are 3 classes|have 3 different values"):
            call(logits, names)
    head = tune_calib.RetrainedHead(epochs=1)
    with pytest.raises(ValueError, match="labels of select are true or false, but there are 3"):
        head.fit(logits, labels, select=(logits, names))
    pair = torch.stack([logits[:, 0], logits[:, 1:].amax(1)], 1)
    plain = tune_calib.calibration_report(pair, names.astype(int)).values
    assert tune_calib.calibration_report(pair, names).values == plain
    assert tune_calib.TemperatureScaling().fit(pair, names).classes_.tolist() == [False, True]


@pytest.mark.parametrize("outputs", [None, "probs"])
@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray, torch.Tensor.tolist, pd.Series])
def test_scores_of_two_classes_are_one_column_or_none_at_every_entrance(kind, outputs):
    scores, labels = drawn(2)[0][:, 1], drawn(2)[1]
    pairs = torch.stack([0 * scores, scores], 1)
    if outputs:
        scores = scores.sigmoid()
        pairs = torch.stack([1 - scores, scores], 1)
    expected = tune_calib.TemperatureScaling().fit(pairs, labels, outputs=outputs)
    report = tune_calib.calibration_report(pairs, labels, outputs=outputs).values
    shapes = [kind(scores)]
    if kind is not pd.Series:
        shapes.append(kind(scores[:, None]))
    for column in shapes:
        found = tune_calib.TemperatureScaling().fit(column, labels, outputs=outputs)
        assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-5)
        probs = torch.as_tensor(expected.predict_proba(column))
        assert torch.allclose(probs, expected.predict_proba(pairs), atol=1e-7)
        values = tune_calib.calibration_report(column, labels, outputs=outputs).values
        assert values == pytest.approx(report, nan_ok=True, abs=1e-6)
