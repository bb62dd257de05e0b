"""Trials of every kind of classifier, and how a test has them carried out without Ray."""

import shutil

from tests.support import CPU, drive, run_of, small_spec
from tune_calib.engine.classifier import Classifier, tensors_of_trial
from tune_calib.engine.evaluate import SplitLogits, fit_transform
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.files.store import Store
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.jobs import Job
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker

HEADS = [name for name in METHODS if METHODS[name].kind == "head"]
MAPS = [name for name in METHODS if METHODS[name].kind == "posthoc"]
OF_FEATURES = [name for name in MAPS if METHODS[name].implementation.reads_features]
POSTHOC = [name for name in MAPS if name not in OF_FEATURES]  # which need logits alone
OF_DIGITS = [name for name in POSTHOC if METHODS[name].classes in (None, 10)]
READINGS = {
    "mac_cal functional": {"masking": "functional", "evaluation": "expected"},
    "mac_cal last mask": {"masking": "functional", "evaluation": "last_mask"},
    "mac_cal drawn": {"masking": "functional", "evaluation": "mc", "refresh": "batch"},
    "vtst mean": {"evaluation": "mean"},
}
TOLD = {**{name: {} for name in HEADS}, **READINGS}


def spec_of(reading=None, posthoc=None, seed=0, **head) -> TrialSpec:
    slots = {"network": small_spec().network.model_dump(mode="json")}
    if reading:
        slots["head"] = {
            "method": reading.split()[0], "epochs": 3, "augment": "none", "seed": seed, "lr": 0.05,
            "params": TOLD[reading], **head,
        }  # fmt: skip
    if posthoc:
        slots["posthoc"] = {"method": posthoc}
    return TrialSpec.build(**slots)


def run_trials(kind, specs, store, out, name="a", **provenance):
    trials = tuple(PlannedTrial(spec, number, "x") for number, spec in enumerate(specs))
    work = Job(name, trials, trials).config()
    config = {"job": work, "run": {**run_of(out, store), **provenance}}
    return drive(kind(config))


def write_run(out, trained, heads):
    """Write a run of heads, a network and a post-hoc method on a trained network and its bank."""
    for kind in ("networks", "banks"):
        shutil.copytree(trained.root / kind, out / "store" / kind)
    store = Store(out / "store")
    run_trials(HeadWorker, heads, store, out, "heads")
    run_trials(NetworkWorker, [spec_of(), spec_of(posthoc="temperature")], store, out, "networks")


def classifier_of(spec, bank):
    """Of a trial of one epoch, made without a store."""
    trainer = transform = None
    if spec.head is not None:
        trainer = HeadBatchTrainer([spec.head], bank, 0, CPU)
        for _ in trainer:
            pass
    if spec.posthoc is not None:
        head = Classifier(spec.head, None, tensors_of_trial(trainer, 0, None))
        calib = bank.calib()
        logits = head.uncalibrated(calib.features, calib.logits)
        split = SplitLogits(logits, calib.labels, features=calib.features)
        transform = fit_transform(spec.posthoc, split)
    return Classifier(spec.head, spec.posthoc, tensors_of_trial(trainer, 0, transform))
