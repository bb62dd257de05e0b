"""Estimators in scikit-learn's style: one for every post-hoc method, and one for a classifier.

In ``tune_calib.TemperatureScaling(fit="nll").fit(logits, labels).predict_proba(logits)``, the name
is that of the method's class and the settings are its hyper-parameters. scikit-learn's ``clone``,
``get_params`` and ``set_params`` work.
"""

import inspect
import warnings
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from tune_calib.engine.evaluate import SplitLogits, features_for, fit_transform
from tune_calib.engine.predict import predict_module
from tune_calib.library import arrays
from tune_calib.metrics import validation
from tune_calib.metrics.scoring import check_order
from tune_calib.metrics.validation import SMALLEST
from tune_calib.spec.methods import METHODS, MethodInfo
from tune_calib.spec.names import FLAGS
from tune_calib.spec.slots.base import PostHocSlot
from tune_calib.text import nearest


class PostHocEstimator(arrays.Estimator):
    """A transform of logits that is fitted on held-out samples.

    Attributes:
        classes_: (C,), the classes in the order of the columns of the logits.
        n_features_in_: C.
        feature_names_in_: (C,), the names of the columns, if ``fit`` got a data frame. Predictions
            for data frames with other names, or in another order, are refused.
        flags_: names from ``names.FLAGS``; ``fit`` warns about each.
        transform_: the fitted method. Fitted values are also attributes, with an underscore after
            their names, e.g. ``temperature_``.
    """

    info: ClassVar[MethodInfo]
    _outputs: str | None = None  # what the caller of ``fit`` says that it passes

    def __init__(self, **settings: Any) -> None:
        defaults = _defaults_of(self.info)
        arrays.refuse_unknown(settings, list(defaults), type(self).__name__)
        self.settings = {**defaults, **settings}

    def set_params(self, **params: Any) -> Self:
        """Change settings; raise a ValueError for an unknown one. Call ``fit`` afterwards."""
        arrays.refuse_unknown(params, list(self.settings), type(self).__name__, ValueError)
        return super().set_params(**params)

    def fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        outputs: str | None = None,
        features: Any = None,
    ) -> Self:
        """Fit on held-out samples.

        Args:
            X: logits (N, C), unnormalised, or log-probabilities; an array, a data frame or a
                tensor. For two classes also scores (N,) or (N, 1) of a ``decision_function``: the
                logit of the second class minus that of the first.
            y: labels (N,), integers from 0 to C - 1, or C other values (strings, integers), whose
                sorted order is that of the columns, as in scikit-learn, unless the columns of a
                data frame are named after them.
            classes: the classes (C,) in the order of the columns, or their number C; needed if the
                labels lack one or the order is another.
            sample_weight: (N,), not negative: how often each sample counts. Methods that count
                samples instead of summing losses support whole numbers only.
            outputs: "logits" or "probs" (probabilities), where their values leave it open; it
                holds for predictions too.
            features: (N, D), of the samples in the last layer of the network before its head, for
                methods that read them, and those alone; ``predict_proba`` takes them too.

        Raises:
            ValueError: an argument has the wrong shape, is not finite or out of range, the logits
                are probabilities, or the labels clearly belong to columns in another order.
            UserError: a setting is out of range, or the method does not support the classes.
        """
        self._outputs = outputs
        arrays.check_names(self, X, reset=True)
        rows = validation.logits_of(X, outputs)
        self.classes_ = arrays.find_classes(y, rows.shape[1], classes, X)
        numbers = validation.number_labels(y, len(rows), self.classes_).to(rows.device)
        columns = self._features(features, rows)
        weights = arrays.find_weights(sample_weight, rows)
        if weights is not None:
            is_kept = weights > 0
            rows, numbers, weights = rows[is_kept], numbers[is_kept], weights[is_kept]
            columns = columns if columns is None else columns[is_kept]
        check_order(rows.argmax(1), numbers, self.classes_, classes is not None)
        slot = PostHocSlot.build(method=self.info.name, params=self.settings)
        held_out = SplitLogits(rows.unsqueeze(0), numbers, features=columns)
        self.transform_ = fit_transform(slot, held_out, weights)
        self.n_features_in_ = rows.shape[1]
        self._width = None if columns is None else columns.shape[1]
        for name, tensor in self.transform_.state().items():
            setattr(self, f"{name.replace('.', '_')}_", arrays.match_type(tensor[0], X))
        for name, tensor in self.transform_.fitted().items():
            setattr(self, f"{name}_", float(tensor[0]))
        flags = self.transform_.flags()
        self.flags_ = tuple(name for name in flags if bool(flags[name][0]))
        for name in self.flags_:
            warnings.warn(f"{self.info.title}: {FLAGS[name].meaning}", stacklevel=2)
        return self

    @torch.no_grad()
    def _logits(self, X: Any, features: Any = None) -> Tensor:
        check_is_fitted(self)
        rows = validation.logits_to_predict(X, self._outputs, self.classes_)
        rows = self._check_columns(X, rows, "logits")
        columns = self._features(features, rows)
        if columns is not None and columns.shape[1] != self._width:
            raise ValueError(f"features must be (N, {self._width}) as in fit, got {columns.shape}")
        inputs = features_for(self.transform_, columns, rows)
        calibrated: Tensor = self.transform_.transform(rows.unsqueeze(0), *inputs)[0]
        return calibrated

    def _features(self, features: Any, rows: Tensor) -> Tensor | None:
        """Return features (N, D) of rows (N, C) of logits, float32, if the method reads them."""
        name, reads_features = type(self).__name__, self.info.implementation.reads_features
        if features is None and reads_features:
            raise ValueError(f"{name} reads features (N, D) too; fit it to logits with `features`")
        if features is None:
            return None
        if not reads_features:
            raise ValueError(f"{name} reads no features; leave them out")
        columns = validation.rows_of(features, "features").float()
        if len(columns) != len(rows):
            raise ValueError(f"there are features of {len(columns)} samples for {len(rows)} logits")
        return columns


_classes: dict[str, type[PostHocEstimator]] = {}


def __getattr__(name: str) -> type[PostHocEstimator]:
    """Return the estimator of a post-hoc method, by the name of the method's class."""
    methods = [info for info in METHODS.values() if info.kind == "posthoc"]
    infos = {info.implementation.__name__: info for info in methods}
    if name not in infos:
        raise AttributeError(f"tune_calib has no {name!r}{nearest(name, sorted(infos))}")
    # Built anew for another version of a plug-in.
    if name not in _classes or _classes[name].info is not infos[name]:
        _classes[name] = _estimator(name, infos[name])
    return _classes[name]


def _defaults_of(info: MethodInfo) -> dict[str, Any]:
    fields = info.params.model_fields
    return {key: fields[key].get_default(call_default_factory=True) for key in fields}


def _estimator(name: str, info: MethodInfo) -> type[PostHocEstimator]:
    parameters = []
    lines = [f"{info.title[0].upper()}{info.title[1:]} ({info.paper} {info.year}).", "", "Args:"]
    for key, default in _defaults_of(info).items():
        field, kind = info.params.model_fields[key], inspect.Parameter.KEYWORD_ONLY
        parameter = inspect.Parameter(key, kind, default=default, annotation=field.annotation)
        parameters.append(parameter)
        lines.append(f"    {key}: {' '.join((field.description or '').split())}")
    # The class must belong to ``tune_calib``, where pickle and joblib look it up.
    names = {"info": info, "__doc__": "\n".join(lines), "__module__": "tune_calib"}
    names["__signature__"] = inspect.Signature(parameters)
    return type(name, (PostHocEstimator,), names)


_DIFFERENT = 0.1  # largest share of predictions that ties of votes explain, e.g. in an SVC


def _check_predictions(classifier: Any, samples: Any, logits: Any) -> None:
    classes = np.asarray(classifier.classes_)
    columns = validation.two_columns(np.asarray(logits), None)
    share = 1.0
    if columns.shape[1] == len(classes) and hasattr(classifier, "predict"):
        predicted = np.asarray(classifier.predict(samples)).reshape(-1, 1)
        is_top = (columns == columns.max(1, keepdims=True)) & (classes == predicted)
        share = 1 - is_top.any(1).mean()
    if share > _DIFFERENT:
        raise ValueError(
            f"{type(classifier).__name__} returns {columns.shape[1]} columns for {len(classes)} "
            f"classes, and predicts another class than the largest for {share:.0%} of X: these are "
            "no logits of the classes; an SVC needs decision_function_shape='ovr', and a tuned "
            "threshold the classifier below it"
        )


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier whose probabilities a post-hoc method calibrates.

    It resembles scikit-learn's ``CalibratedClassifierCV(FrozenEstimator(classifier))`` but works
    with every post-hoc method and with torch modules. The classifier is never trained, and
    ``clone`` shares it.

    Args:
        classifier: a fitted scikit-learn classifier, or a ``torch.nn.Module`` that returns logits
            (N, C). A module is called in evaluation mode, on its own device.
        method: the estimator of a post-hoc method, e.g. ``VectorScaling()``; temperature scaling
            by default.

    Attributes:
        classes_: (C,), classes of the classifier, or of the labels if it has none.
        method_: the fitted method.
    """

    def __init__(self, classifier: Any, method: PostHocEstimator | None = None) -> None:
        self.classifier = classifier
        self.method = method

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy with the same classifier, which stays fitted."""
        return type(self)(self.classifier, clone(self.method, safe=False))

    def fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        outputs: str | None = None,
    ) -> Self:
        """Fit the method on samples that the classifier was not trained on.

        Args:
            X: N samples, as the classifier takes them.
            y: (N,), their labels, as the classifier names them; for a module, integers from 0 to
                C - 1, or C other values whose sorted order is that of its logits.
            classes: for a module, the classes (C,) in the order of its logits, or their number C.
            sample_weight: (N,), as in ``fit`` of the method.
            outputs: "logits" or "probs", what a module returns, where its values leave it open.

        Raises:
            ValueError: the labels do not match the classes, an output is not finite or no logits,
                or the classifier predicts other classes than its decision function.
        """
        if self.method is None:
            self.method_ = __getattr__("TemperatureScaling")()
        else:
            self.method_ = clone(self.method)
        arrays.check_names(self, X, reset=True)
        logits = self._logits(X)
        if (names := getattr(self.classifier, "classes_", None)) is not None:
            if classes is not None and not np.array_equal(classes, names):
                raise ValueError("classes must be those of the classifier; leave them out")
            classes = names
            _check_predictions(self.classifier, X, logits)
        self.method_.fit(logits, y, classes=classes, sample_weight=sample_weight, outputs=outputs)
        self.classes_ = self.method_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return calibrated probabilities (N, C), float64."""
        check_is_fitted(self)
        return self.method_.predict_proba(self._logits(X))

    def predict(self, X: Any) -> Any:
        """Return the most probable class of each sample, (N,)."""
        probs = self.predict_proba(X)  # first, since it refuses an unfitted estimator
        return arrays.take_classes(self.classes_, probs)

    @torch.no_grad()
    def _logits(self, samples: Any) -> Any:
        """Return logits (N, C), scores (N,), or log-probabilities if the classifier has neither."""
        validation.refuse_masked(samples, "X")
        if not isinstance(self.classifier, nn.Module):
            if hasattr(self.classifier, "decision_function"):
                return self.classifier.decision_function(samples)
            return np.log(np.clip(self.classifier.predict_proba(samples), SMALLEST, None))
        arrays.check_names(self, samples, reset=False)
        logits = predict_module(self.classifier, samples)
        return logits if isinstance(samples, Tensor) else logits.float().cpu().numpy()
