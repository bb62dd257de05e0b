"""A fitted classifier of scikit-learn or torch, calibrated as one classifier."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import estimator_checks
from torch import nn

import tune_calib
from tests.classifiers import POSTHOC
from tune_calib.spec.methods import METHODS

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


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
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


def test_copies_share_the_classifier_and_nothing_else():
    (train, calib, _), (y_train, y_calib, _) = data(3)
    classifier = GaussianNB().fit(train, y_train)
    one = tune_calib.CalibratedClassifier(classifier, tune_calib.TemperatureScaling())
    other = clone(one).set_params(method__fit="grid_ece")
    assert one.method.get_params() == {"fit": "nll", "top_versus_all": False}
    assert other.classifier is classifier
    search = GridSearchCV(one, {"method__fit": ["nll", "grid_ece", "grid_nll"]}, cv=3, n_jobs=3)
    with parallel_config(backend="threading"):
        scores = search.fit(calib, y_calib).cv_results_["split0_test_score"]
    assert len(scores) == 3
    assert one.method.get_params() == {"fit": "nll", "top_versus_all": False}


def test_classifiers_whose_outputs_are_no_logits_of_their_classes_are_refused():
    for classes in (3, 4):
        samples, labels = make_classification(
            600, 8, n_informative=5, n_classes=classes, random_state=1
        )
        pairwise, by_class = (
            SVC(decision_function_shape=shape).fit(samples[:300], labels[:300])
            for shape in ("ovo", "ovr")
        )
        with pytest.raises(ValueError, match="no logits of the classes; an SVC needs"):
            tune_calib.CalibratedClassifier(pairwise).fit(samples[300:], labels[300:])
        fitted = tune_calib.CalibratedClassifier(by_class).fit(samples[300:], labels[300:])
        assert fitted.score(samples[300:], labels[300:]) > 0.7


class Returning(nn.Module):
    """A module that returns what a function makes of its logits."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(8, 3), function

    def forward(self, x):
        return self.function(self.layer(x))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: {"logits": x}, r"logits \(500, C\) for 500 samples, got <class 'dict'>"),
        (lambda x: x.squeeze(0), r"logits \(1, C\) for 1 samples, got torch.Size\(\[3\]\)"),
        (lambda x: x[None], r"got torch.Size\(\[1, 500, 3\]\)"),
    ],
)
def test_a_module_that_returns_no_logits_is_one_line(function, message):
    module, samples = Returning(function), np.zeros((501, 8))
    with pytest.raises(ValueError, match=message) as refused:
        tune_calib.CalibratedClassifier(module).fit(samples, np.arange(501) % 3)
    assert "\n" not in str(refused.value)
    assert module.training


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_a_module_is_applied_in_evaluation_mode(kind):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3))
    module[1].eval()  # a part that its user has frozen
    modes = [part.training for part in module.modules()]
    (_, calib, test), (_, y_calib, _) = data(3)
    if kind == "tensor":
        calib, test = (torch.from_numpy(each).float() for each in (calib, test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is not trained
        calibrated = tune_calib.CalibratedClassifier(module).fit(calib, y_calib)
    assert [part.training for part in module.modules()] == modes
    module.train()
    probs = calibrated.predict_proba(test)
    module.eval()
    with torch.no_grad():
        logits = module(torch.as_tensor(test).float())
    assert isinstance(probs, torch.Tensor) == (kind == "tensor")
    expected = (logits.double() / calibrated.method_.temperature_).softmax(1)
    np.testing.assert_allclose(probs, expected, rtol=1e-6)
    assert calibrated.predict(test).tolist() == NAMES[logits.argmax(1)].tolist()
    assert clone(calibrated).classifier is module


LINES = "refused in one line of our own, which names the argument"
FLOATS = "labels are never floats, so that labels and logits cannot be swapped unnoticed"
NOT_OF_ALL = {
    "check_no_attributes_set_in_init": "settings are known by the registry; one is named fit",
    "check_n_features_in_after_fitting": LINES,
    "check_dtype_object": LINES,
    "check_estimators_empty_data_messages": LINES,
    "check_fit2d_predict1d": LINES,
    "check_requires_y_none": LINES,
    "check_estimators_nan_inf": FLOATS,
    "check_classifiers_one_label": "a calibrated classifier has two or more classes",
}
STOPS = "the optimiser stops near the minimum, by another way for other rows: 1e-5 apart"
STEPS = "networks take a number of steps, which enlarge rounding errors of rows in another order"
NETWORKS = (
    "ParametrisedTemperature", "DiagonalOrderPreserving", "InvariantOrderPreserving",
    "PlainOrderPreserving",
)  # fmt: skip
AS_COLUMNS = "the data have another number of classes than of columns, which are logits"
NOT_OF_METHODS = NOT_OF_ALL | {
    "check_estimators_overwrite_params": AS_COLUMNS,
    "check_estimators_fit_returns_self": AS_COLUMNS,
    "check_readonly_memmap_input": AS_COLUMNS,
    "check_classifiers_classes": AS_COLUMNS,
    "check_classifiers_train": AS_COLUMNS,
}
OF_BETA = "beta calibration is for two classes, and the data have three to thirty columns"
NOT_OF_BETA = NOT_OF_METHODS | dict.fromkeys(
    (
        "check_fit_score_takes_y", "check_dont_overwrite_parameters",
        "check_positive_only_tag_during_fit", "check_estimators_dtypes",
        "check_sample_weights_list", "check_sample_weight_equivalence_on_dense_data",
        "check_pipeline_consistency", "check_estimators_pickle",
        "check_f_contiguous_array_estimator", "check_supervised_y_2d",
        "check_methods_sample_order_invariance", "check_methods_subset_invariance",
        "check_fit2d_1sample", "check_dict_unchanged", "check_classifiers_one_label_sample_weights",
    ),
    OF_BETA,
)  # fmt: skip
# Not CalibratedClassifier: it is fitted to other columns and classes than those of most checks.
OF_LOGITS = [METHODS[name].implementation.__name__ for name in POSTHOC]
ESTIMATORS = [*OF_LOGITS, "RetrainedHead"]


def test_checks_of_scikit_learn_pass_for_a_fitted_classifier():
    (samples, *_), (names, *_) = data(2)
    classifier = GaussianNB().fit(samples[:, :2], (names == "bee").astype(int))
    wrapper = tune_calib.CalibratedClassifier(classifier)
    for name in (
        "check_estimator_cloneable", "check_estimator_repr", "check_estimators_unfitted",
        "check_get_params_invariance", "check_parameters_default_constructible",
        "check_set_params", "check_no_attributes_set_in_init",
    ):  # fmt: skip
        # Those of a later version of scikit-learn are absent in an earlier one.
        if check := getattr(estimator_checks, name, None):
            check(name, wrapper)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["TemperatureScaling", *(pytest.param(n, marks=pytest.mark.slow) for n in ESTIMATORS)]
)
def test_every_check_of_scikit_learn_passes_but_those_that_cannot_apply(name):
    pytest.importorskip("sklearn", minversion="1.6")
    is_head = name == "RetrainedHead"
    estimator = tune_calib.RetrainedHead(epochs=20) if is_head else getattr(tune_calib, name)()
    expected = NOT_OF_ALL if is_head else NOT_OF_METHODS
    if name == "VectorScaling":
        expected = NOT_OF_METHODS | {"check_sample_weight_equivalence_on_dense_data": STOPS}
    if name in NETWORKS:
        expected = NOT_OF_METHODS | {"check_sample_weight_equivalence_on_dense_data": STEPS}
    if name == "BetaCalibration":
        expected = NOT_OF_BETA
    estimator_checks.check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
