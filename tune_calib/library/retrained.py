"""An estimator that retrains a head on features with the engine's training, without a store."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from tune_calib.data.imported import LinearHead
from tune_calib.engine.bank import DevelopmentBank, FeatureSplit
from tune_calib.engine.classifier import Classifier, tensors_of_trial
from tune_calib.engine.head_batch import HEAD_THREADS, HeadBatchTrainer
from tune_calib.engine.machine import on_threads
from tune_calib.errors import UserError
from tune_calib.library import arrays
from tune_calib.metrics.scoring import check_order
from tune_calib.metrics.validation import number_labels, rows_of, to_array, whole_number
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot


class RetrainedHead(arrays.Estimator):
    """A head retrained on the frozen features of a network.

    It gives the same numbers as a trial on the same features.

    Args:
        method: name of a head method, e.g. ``mac_cal``.
        network_seed: seed of the order of batches that all heads of a network share.
        settings: settings of the method and of the head slot (``lr``, ``epochs``, ``select``,
            ``seed``); no recipe is used.

    Attributes:
        classes_: (C,), the classes in the order of the logits.
        n_features_in_: D.
        feature_names_in_: (D,), the names of the columns, if ``fit`` got a data frame.
        epoch_: the selected epoch, 1-based.
        history_: values of each epoch, by name; those on ``select`` only if it was given.
        classifier_: the trained head.
    """

    def __init__(self, method: str = "retrain", network_seed: int = 0, **settings: Any) -> None:
        self.settings = {"method": method, "network_seed": network_seed, **settings}

    def fit(
        self,
        X: Any,
        y: Any,
        select: tuple[Any, Any] | None = None,
        own_head: tuple[Any, Any] | None = None,
        classes: Any = None,
    ) -> Self:
        """Train the head.

        Args:
            X: features (N, D), of the training images; an array, or a tensor whose device is used
                for training.
            y: labels (N,), integers from 0 to C - 1, or other values (strings, integers), which are
                sorted, as in scikit-learn.
            select: features and labels of held-out images, on which an epoch is selected.
            own_head: weight (C, D) and bias (C,) of the network's own head, which some settings
                need (``start`` other than ``fresh``, ``gamma=val_ratio``).
            classes: the classes (C,) in the order of the logits, or their number C; needed if the
                labels lack one.

        Raises:
            ValueError: an argument has the wrong shape, is not finite or out of range, or is
                missing.
            UserError: a setting is unknown or out of range, or the training diverged.
        """
        slot, network_seed = self._slot(), self.settings["network_seed"]
        network_seed = whole_number(network_seed, "network_seed", 0)
        arrays.check_names(self, X, reset=True)
        rows = rows_of(X, "features").float()
        self.n_features_in_ = rows.shape[1]
        head, count = None, None
        if own_head is not None:
            head = _own_head(own_head, rows)
            count = len(head.weight)
        names = arrays.find_classes(y, count, classes)
        if len(names) < 2:
            raise ValueError("labels have only one class; give the number of `classes`")
        train = _split(rows, number_labels(y, len(rows), names), head)
        if head is not None:
            check_order(train.logits.argmax(1), train.labels, names, classes is not None)
        held_out = None
        if select is not None:
            name = "features of select"
            select_rows = self._check_columns(select[0], rows_of(select[0], name), name).float()
            numbers = number_labels(select[1], len(select_rows), names, "labels of select")
            held_out = _split(select_rows.to(rows.device), numbers, head)
        _refuse_lacking(slot, held_out is not None, head is not None)
        if head is None:  # one of NaN, for which no loss is finite
            nothing = rows.new_full((len(names), rows.shape[1]), torch.nan)
            head = LinearHead(nothing, nothing[:, 0])
        bank = MemoryBank(train, held_out or train, head)
        self._train(slot, bank, network_seed, rows.device, has_select=held_out is not None)
        self.classes_ = names
        return self

    def _train(
        self,
        slot: HeadSlot,
        bank: DevelopmentBank,
        seed: int,
        device: torch.device,
        has_select: bool,
    ) -> None:
        with on_threads(HEAD_THREADS):
            trainer = HeadBatchTrainer([slot], bank, seed, device=device)
            reports = list(trainer)
        if (epoch := int(trainer.diverged_epoch[0])) >= 0:
            raise UserError(f"the loss of epoch {epoch + 1} is not finite: take a smaller lr")
        self.history_ = {}
        for name in reports[0]:
            # If it was not given, `select` is train, and its values are meaningless.
            if has_select or not name.startswith("select/"):
                self.history_[name] = [float(report[name][0]) for report in reports]
        self.epoch_ = int(trainer.best_epoch[0]) + 1
        self.classifier_ = Classifier(slot, None, tensors_of_trial(trainer, 0, None))
        self.classifier_.to(device)

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self, "classes_")
        rows = self._check_columns(X, rows_of(X, "features"), "features").float()
        logits: Tensor = self.classifier_(rows, rows[:, :0])[0]
        return logits

    def _slot(self) -> HeadSlot:
        settings = dict(self.settings)
        del settings["network_seed"]
        info = METHODS[settings.pop("method")]
        if info.kind != "head":
            raise UserError(f"method {info.name!r} is a {info.kind} method, not a head method")
        of_method = info.params.model_fields.keys()
        # Settings of the images from which the features were computed do not apply here.
        others = {"method", "params", "plugin", "views", "bn_mode", "augment"}
        names = sorted({*HeadSlot.model_fields.keys() - others, *of_method})
        arrays.refuse_unknown(settings, names, f"RetrainedHead({info.name!r})")
        params = {name: settings.pop(name) for name in of_method & settings.keys()}
        return HeadSlot.build(method=info.name, params=params, augment="none", **settings)


class MemoryBank(DevelopmentBank):
    """Features in memory instead of a bank's files."""

    def __init__(self, train: FeatureSplit, select: FeatureSplit, head: LinearHead) -> None:
        self._train, self._select, self._head = train, select, head
        accuracies = {}
        for name, split in (("train", train), ("select", select)):
            accuracies[name] = float((split.logits.argmax(1) == split.labels).double().mean())
        self.manifest = {"train_views": 1, "accuracy": accuracies}

    def train(self, view: int = 0) -> FeatureSplit:
        return self._train

    def select(self) -> FeatureSplit:
        return self._select

    def own_head(self) -> tuple[Tensor, Tensor]:
        return self._head.weight, self._head.bias


def _split(rows: Tensor, labels: Tensor, head: LinearHead | None) -> FeatureSplit:
    logits = rows[:, :1] if head is None else rows @ head.weight.T + head.bias
    return FeatureSplit(rows, logits, labels.to(rows.device))


def _own_head(own_head: tuple[Any, Any], rows: Tensor) -> LinearHead:
    weight = rows_of(own_head[0], "weight of own_head").float().to(rows.device)
    column = np.reshape(to_array(own_head[1], "bias of own_head"), (-1, 1))
    bias = rows_of(column, "bias of own_head").float()[:, 0].to(rows.device)
    if weight.shape != (len(bias), rows.shape[1]):
        raise ValueError(
            f"own_head must be weight (C, {rows.shape[1]}) and bias (C,), got "
            f"{tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    return LinearHead(weight, bias)


def _refuse_lacking(slot: HeadSlot, has_select: bool, has_head: bool) -> None:
    if slot.select != "last" and not has_select:
        raise ValueError(
            f"select={slot.select} selects an epoch on held-out images: pass them to fit as "
            "select=(features, labels)"
        )
    start = getattr(slot.params, "start", None)
    if start in ("continued", "frozen") and not has_head:
        raise ValueError(f"start={start} needs own_head=(weight, bias) of the network")
    if getattr(slot.params, "gamma", None) == "val_ratio" and not (has_head and has_select):
        raise ValueError(
            "gamma=val_ratio needs own_head=(weight, bias) of the network and "
            "select=(features, labels); or give gamma as a number"
        )
