"""A fitted classifier of scikit-learn or torch, calibrated as one classifier."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import estimator_checks
from torch import nn

import tune_calib
from tests.support import each

NAMES = np.array(["ant", "bee", "cat"])
CLASSIFIERS = {
    "decision_function": LogisticRegression(C=100),
    "predict_proba": RandomForestClassifier(20, random_state=0),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "naive": GaussianNB(),
    "margins": LinearSVC(),
}


def data(classes):
    samples, labels = make_classification(
        900, 8, n_informative=5, n_classes=classes, flip_y=0.2, random_state=1
    )
    return np.split(samples, 3), np.split(NAMES[labels], 3)


@each("classes", [2, 3])
@each("name", CLASSIFIERS)
def test_a_fitted_classifier_is_calibrated_and_not_trained(name, classes):
    (train, calib, test), (y_train, y_calib, y_test) = data(classes)
    classifier = clone(CLASSIFIERS[name]).fit(train, y_train)
    before = pickle.dumps(classifier)
    calibrated = tune_calib.CalibratedClassifier(classifier)
    with pytest.raises(NotFittedError):
        calibrated.predict_proba(test)
    calibrated.fit(calib, y_calib)
    probs = calibrated.predict_proba(test)
    assert probs.shape == (len(test), classes)
    np.testing.assert_allclose(probs.sum(1), 1)
    assert calibrated.classes_.tolist() == NAMES[:classes].tolist()
    assert calibrated.predict(test).tolist() == classifier.predict(test).tolist()
    assert calibrated.score(test, y_test) == classifier.score(test, y_test)
    if name == "predict_proba":  # a forest knows its training samples by heart
        assert log_loss(y_test, probs) < log_loss(y_test, classifier.predict_proba(test))
    assert pickle.dumps(classifier) == before
    again = clone(calibrated).fit(calib, y_calib)
    assert np.array_equal(again.predict_proba(test), probs)
    assert np.array_equal(pickle.loads(pickle.dumps(calibrated)).predict_proba(test), probs)


def test_any_method_calibrates_and_a_frozen_estimator_is_the_same():
    frozen = pytest.importorskip("sklearn.frozen").FrozenEstimator
    (train, calib, test), (y_train, y_calib, _) = data(3)
    classifier = GaussianNB().fit(train, y_train)
    method = tune_calib.VectorScaling()
    one, two = (
        tune_calib.CalibratedClassifier(each, method).fit(calib, y_calib)
        for each in (classifier, frozen(classifier))
    )
    assert np.array_equal(one.predict_proba(test), two.predict_proba(test))
    assert not hasattr(method, "classes_")
    of_sklearn = CalibratedClassifierCV(frozen(classifier)).fit(calib, y_calib)
    assert of_sklearn.classes_.tolist() == one.classes_.tolist()
    assert min(cross_val_score(one, calib, y_calib, cv=3)) > 0.5


def test_labels_that_the_classifier_does_not_know_are_refused():
    (train, calib, _), (y_train, y_calib, _) = data(3)
    classifier = GaussianNB().fit(train, y_train)
    with pytest.raises(ValueError, match="must be in ant, bee, cat, the 3 classes; there is dog"):
        tune_calib.CalibratedClassifier(classifier).fit(
            calib, np.where(y_calib == "cat", "dog", "bee")
        )


@each("kind", ["array", "tensor"])
def test_a_module_is_called_in_evaluation_mode(kind):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3))
    (_, calib, test), (_, y_calib, _) = data(3)
    if kind == "tensor":
        calib, test = (torch.from_numpy(each).float() for each in (calib, test))
    calibrated = tune_calib.CalibratedClassifier(module).fit(calib, y_calib)
    module.eval()
    with torch.no_grad():
        logits = module(torch.as_tensor(test).float())
    probs = calibrated.predict_proba(test)
    assert isinstance(probs, torch.Tensor) == (kind == "tensor")
    expected = (logits.double() / calibrated.method_.temperature_).softmax(1)
    np.testing.assert_allclose(probs, expected, rtol=1e-6)
    assert calibrated.predict(test).tolist() == NAMES[logits.argmax(1)].tolist()
    assert clone(calibrated).classifier is module


OF_ALL = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimators_unfitted",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_get_params_invariance",
    "check_parameters_default_constructible",
    "check_set_params",
)
OF_WRAPPER = (*OF_ALL, "check_no_attributes_set_in_init")
# Checks on data of as many columns as classes.
OF_METHODS = (
    *OF_ALL,
    "check_dict_unchanged",
    "check_estimators_pickle",
    "check_fit2d_1sample",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
)


@pytest.mark.filterwarnings("ignore")
def test_what_scikit_learn_checks_of_every_estimator():
    (samples, *_), (names, *_) = data(2)
    classifier = GaussianNB().fit(samples[:, :2], (names == "bee").astype(int))
    wrapper = tune_calib.CalibratedClassifier(classifier)
    for names, estimator in (
        (OF_WRAPPER, wrapper), (OF_METHODS, tune_calib.TemperatureScaling()),
    ):  # fmt: skip
        for name in names:
            # Those of a later version of scikit-learn are absent in an earlier one.
            check = getattr(estimator_checks, name, None)
            if check is not None:
                check(name, estimator)
