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

from tune_calib.data.imported import SMALLEST
from tune_calib.engine.evaluate import SplitLogits, fit_transform
from tune_calib.library import arrays
from tune_calib.metrics.validation import PROBABILITIES, UNEVEN, are_probabilities
from tune_calib.spec.methods import METHODS, MethodInfo
from tune_calib.spec.names import FLAGS
from tune_calib.spec.slots.posthoc import PostHocSlot
from tune_calib.text import nearest


class PostHocEstimator(arrays.Estimator):
    """A transform of logits that is fitted on held-out samples.

    Attributes:
        classes_: (C,), the classes in the order of the columns of the logits.
        n_features_in_: C.
        flags_: names from ``names.FLAGS``; ``fit`` warns about each.
        transform_: the fitted method. Fitted values are also attributes, with an underscore after
            their names, e.g. ``temperature_``.
    """

    info: ClassVar[MethodInfo]
    _outputs: str | None = None  # what the caller of ``fit`` says that it passes

    def __init__(self, **settings: Any) -> None:
        fields = self.info.params.model_fields
        arrays.refuse_unknown(settings, list(fields), type(self).__name__)
        defaults = {k: field.get_default(call_default_factory=True) for k, field in fields.items()}
        self.settings = {**defaults, **settings}

    def set_params(self, **params: Any) -> Self:
        """Change settings; raise a ValueError for an unknown one. Call ``fit`` afterwards."""
        arrays.refuse_unknown(params, list(self.settings), type(self).__name__, ValueError)
        return super().set_params(**params)

    def fit(
        self, logits: Any, labels: Any, classes: Any = None, outputs: str | None = None
    ) -> Self:
        """Fit on held-out samples.

        Args:
            logits: (N, C), unnormalised, or log-probabilities; an array or a tensor. For two
                classes also scores (N,) of a ``decision_function``: the logit of the second class
                minus that of the first.
            labels: (N,), integers from 0 to C - 1, or C other values (strings, integers), whose
                sorted order is that of the columns, as in scikit-learn.
            classes: (C,), the classes of the columns; needed if ``labels`` lack one.
            outputs: "logits" or "probs" (probabilities), where their values leave it open; it
                holds for predictions too.

        Raises:
            ValueError: an argument has the wrong shape, is not finite or out of range, or the
                logits are probabilities.
            UserError: a setting is out of range, or the method does not support the classes.
        """
        self._outputs = outputs
        rows = _two_columns(logits, outputs)
        if outputs is None and _is_scores(logits):
            is_bounded = (rows[:, 1] >= -UNEVEN) & (rows[:, 1] <= 1 + UNEVEN)
            if float(is_bounded.double().mean()) >= 0.99:
                raise ValueError(
                    "scores of two classes look like probabilities: nearly all are in [0, 1]; pass "
                    'outputs="probs", or outputs="logits" if they are logits'
                )
            outputs = "logits"
        rows = arrays.logits_of(rows, outputs)
        if rows.shape[1] < 2:
            raise ValueError(f"logits must have two or more classes, got {tuple(rows.shape)}")
        self.classes_ = arrays.find_classes(labels, rows.shape[1], classes)
        own = arrays.number_labels(labels, len(rows), self.classes_).to(rows.device)
        slot = PostHocSlot.build(method=self.info.name, params=self.settings)
        self.transform_ = fit_transform(slot, SplitLogits(rows.unsqueeze(0), own))
        self.n_features_in_ = rows.shape[1]
        for name, tensor in self.transform_.state().items():
            setattr(self, f"{name.replace('.', '_')}_", arrays.match_type(tensor[0], logits))
        for name, tensor in self.transform_.fitted().items():
            setattr(self, f"{name}_", float(tensor[0]))
        flags = self.transform_.flags().items()
        self.flags_ = tuple(name for name, is_so in flags if bool(is_so[0]))
        for name in self.flags_:
            warnings.warn(f"{self.info.title}: {FLAGS[name].meaning}", stacklevel=2)
        return self

    def predict_proba(self, logits: Any) -> Any:
        """Return calibrated probabilities (N, C), float64; a tensor for a tensor, else an array.

        Raises:
            ValueError: the logits have another number of classes than in ``fit``, are not finite,
                or are several rows of probabilities.
        """
        return arrays.match_type(self._calibrated(logits).softmax(-1), logits)

    def decision_function(self, logits: Any) -> Any:
        """Return calibrated logits (N, C), float64, or scores (N,) for scores."""
        found = self._calibrated(logits)
        return arrays.match_type(found[:, 1] - found[:, 0] if _is_scores(logits) else found, logits)

    @torch.no_grad()
    def _calibrated(self, logits: Any) -> Tensor:
        rows = self._rows(_two_columns(logits, self._outputs), "logits").double()
        if self._outputs is not None:
            rows = arrays.logits_of(rows, self._outputs)
        # The logits of one sample may sum to 1 by chance, and must not be refused then.
        elif len(rows) > 1 and are_probabilities(rows):
            raise ValueError(PROBABILITIES)
        calibrated: Tensor = self.transform_.transform(rows.unsqueeze(0))[0]
        return calibrated


def _is_scores(given: Any) -> bool:
    return (given.ndim if isinstance(given, Tensor) else np.ndim(given)) == 1


def _two_columns(given: Any, outputs: str | None) -> Any:
    """Return scores (N,) of two classes as outputs (N, 2), and anything else unchanged."""
    if not _is_scores(given):
        return given
    column = given[:, None] if isinstance(given, Tensor) else np.reshape(given, (-1, 1))
    scores = arrays.rows_of(column, "logits")[:, 0]
    return torch.stack([1 - scores if outputs == "probs" else 0 * scores, scores], 1)


_made: dict[str, type[PostHocEstimator]] = {}


def __getattr__(name: str) -> type[PostHocEstimator]:
    """Return the estimator of a post-hoc method, by the name of the method's class."""
    infos = {info.implementation.__name__: info for info in map(METHODS.__getitem__, METHODS)}
    found = {own: info for own, info in infos.items() if info.kind == "posthoc"}
    if name not in found:
        raise AttributeError(f"tune_calib has no {name!r}{nearest(name, sorted(found))}")
    # Built anew for another version of a plug-in.
    if name not in _made or _made[name].info is not found[name]:
        _made[name] = _estimator(name, found[name])
    return _made[name]


def _estimator(name: str, info: MethodInfo) -> type[PostHocEstimator]:
    fields, kind = info.params.model_fields, inspect.Parameter
    parameters = [kind("self", kind.POSITIONAL_OR_KEYWORD)]
    for key, field in fields.items():
        default = field.get_default(call_default_factory=True)
        parameters.append(
            kind(key, kind.KEYWORD_ONLY, default=default, annotation=field.annotation)
        )

    def __init__(self: PostHocEstimator, **given: Any) -> None:  # noqa: N807
        PostHocEstimator.__init__(self, **given)

    # Read by editors and by scikit-learn.
    __init__.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    about = [f"    {key}: {' '.join((f.description or '').split())}" for key, f in fields.items()]
    lines = [f"{info.title[0].upper()}{info.title[1:]} ({info.paper} {info.year})."]
    text = "\n".join([*lines, "", "Args:", *about] if about else lines)
    # The class must belong to ``tune_calib``, where pickle and joblib look it up.
    names = {"info": info, "__init__": __init__, "__doc__": text, "__module__": "tune_calib"}
    return type(name, (PostHocEstimator,), names)


BATCH = 500


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier whose probabilities a post-hoc method calibrates.

    It resembles scikit-learn's ``CalibratedClassifierCV(FrozenEstimator(classifier))`` but works
    with every post-hoc method and with torch modules. The classifier is never trained, and
    ``clone`` shares it.

    Args:
        classifier: a fitted scikit-learn classifier, or a ``torch.nn.Module`` that returns logits
            (N, C). A module is put into evaluation mode and called on its own device.
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
        return type(self)(self.classifier, self.method)

    def fit(self, X: Any, y: Any, outputs: str | None = None) -> Self:  # noqa: N803
        """Fit the method on samples that the classifier was not trained on.

        Args:
            X: N samples, as the classifier takes them.
            y: (N,), their labels, as the classifier names them; for a module, integers from 0 to
                C - 1, or C other values whose sorted order is that of its logits.
            outputs: "logits" or "probs", what a module returns, where its values leave it open.

        Raises:
            ValueError: the labels do not match the classes, or an output is not finite.
        """
        method = __getattr__("TemperatureScaling")() if self.method is None else self.method
        self.method_ = clone(method)
        classes = getattr(self.classifier, "classes_", None)
        self.method_.fit(self._logits(X), y, classes, outputs)
        self.classes_ = self.method_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return calibrated probabilities (N, C), float64."""
        check_is_fitted(self)
        return self.method_.predict_proba(self._logits(X))

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the most probable class of each sample, (N,)."""
        probs = self.predict_proba(X)  # first, since it refuses an unfitted estimator
        return arrays.take_classes(self.classes_, probs)

    @torch.no_grad()
    def _logits(self, samples: Any) -> Any:
        """Return logits (N, C), scores (N,), or log-probabilities if the classifier has neither."""
        if not isinstance(self.classifier, nn.Module):
            if hasattr(self.classifier, "decision_function"):
                return self.classifier.decision_function(samples)
            return np.log(np.clip(self.classifier.predict_proba(samples), SMALLEST, None))
        weight = next(self.classifier.parameters(), torch.empty(0))
        given = samples if isinstance(samples, Tensor) else torch.as_tensor(np.asarray(samples))
        if not isinstance(samples, Tensor) and given.is_floating_point():
            given = given.to(weight.dtype)  # arrays are float64, and modules hardly ever are
        self.classifier.eval()
        logits = torch.cat([self.classifier(x.to(weight.device)) for x in given.split(BATCH)])
        return logits if isinstance(samples, Tensor) else logits.float().cpu().numpy()
