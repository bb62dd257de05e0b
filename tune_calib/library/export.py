"""Export of a trial as a calibrated network, which needs neither its folder nor its store."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tune_calib.data.splits import Development, load_development
from tune_calib.engine.bank import DevelopmentBank, bank_key
from tune_calib.engine.classifier import (
    Classifier,
    ensure_classifier,
    is_storable,
    judged,
    open_bank,
    store_classifier,
    train_again,
)
from tune_calib.engine.extra import network_behind
from tune_calib.engine.machine import require_environment, set_switches
from tune_calib.engine.predict import TrainedNetwork
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.paths import AnyPath, refuse_existing
from tune_calib.files.store import Store
from tune_calib.library.calibrated import CalibratedNetwork, files_of, write_calibrated
from tune_calib.library.onnx_file import write_onnx
from tune_calib.results.folders import is_search, read_search_manifest
from tune_calib.results.manifests import RunManifest, SearchOutcome
from tune_calib.results.selection import BASELINE, CHOSEN, EVALUATION
from tune_calib.results.tables import is_metric_column, read_slots, read_table
from tune_calib.spec import plugins
from tune_calib.spec.metrics import BASE, METRICS, NO_BEST, column, format_value
from tune_calib.spec.names import REPLAYED, WATCHED, is_never_best
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import format_count

_CLOSE = 1e-6  # the same classifier on the same kind of machine gives the same digits
_PROVENANCE = (
    "device", "threads", "processor", "instruction_set", "gpu", "execution", "versions",
    "git_revision", "recipe",
)  # fmt: skip

Row = dict[str, Any]


def export(
    out: AnyPath,
    store: AnyPath,
    data_root: Path | None,
    file: str,
    trial: str | None = None,
    best: str | None = None,
    is_onnx: bool = False,
) -> str:
    """Write the calibrated network of one finished trial, and return a description of it."""
    tensors_file, record_file, onnx_file = files_of(file)
    to_write = [tensors_file, record_file]
    if is_onnx:
        to_write.append(onnx_file)
    for path in to_write:
        refuse_existing(path)
    row = _chosen(out, trial, best)
    if row.get("device") == REPLAYED:
        raise UserError(f"{out} was replayed: its trials were not trained")
    spec = TrialSpec.build(**read_slots(row))
    _refuse_unexportable(spec, is_onnx)
    device = set_up(row, spec)
    artifacts = Store(store)
    development = partial(load_development, spec.network_data, data_root, artifacts.images)
    try:
        trained, members = None, []
        for member in spec.members:
            trained = network_behind(member, artifacts, development, device)
            fitted = ensure_classifier(member, artifacts, development, device)
            members.append(CalibratedNetwork(member, fitted, trained))
        if not members and spec.data.import_record is None:
            trained = network_behind(spec, artifacts, development, device)
        classifier = _classifier_of(row, spec, artifacts, development, device)
    except DamagedFileError as error:
        raise UserError(f"{error}; give the `store` of the run") from None
    network = CalibratedNetwork(spec, classifier, None if members else trained, members).cpu()
    if spec.data.info.general is not None:
        network.classes = spec.data.info.general.class_names(spec.data, data_root)
    if is_onnx:  # first, since it may be refused
        real = None
        bank = _stored_bank(spec, artifacts, development, torch.device("cpu"))
        if bank is not None:
            calib = bank.calib()
            real = classifier.uncalibrated(calib.features, calib.logits)[0]
        write_onnx(network, onnx_file, real)
    write_calibrated(network, file, describe_trial(row, spec, trained))
    return _describe(row, to_write)


def _refuse_unexportable(spec: TrialSpec, is_onnx: bool) -> None:
    if spec.members and spec.data.import_record is not None:
        raise UserError(
            "a pool of imported logits has no networks to export; pool the networks in Python: "
            "tune_calib.calibrate_pool"
        )
    refuse_unstorable(spec)
    is_import_without_head = spec.data.import_record is not None and spec.head is None
    if spec.posthoc and spec.reads_features and (is_onnx or is_import_without_head):
        raise UserError(
            f"the post-hoc method {spec.posthoc.method} reads features besides logits: it can be "
            "exported behind a network or a head only, and not as ONNX; export another trial"
        )


def refuse_unstorable(spec: TrialSpec) -> None:
    """Refuse a trial with a transform, also of members of a pool, that would be pickled."""
    for part in (spec, *spec.members):
        if part.posthoc is not None and not is_storable(part):
            raise UserError(
                f"the post-hoc method {part.posthoc.method} cannot be exported: its fit is an "
                "object of another library, which would have to be pickled; use another method"
            )


def set_up(row: Row, spec: TrialSpec) -> torch.device:
    """Set up torch as in a trial, and return its device, or the CPU if it is not available."""
    require_environment(spec)
    device = torch.device("cpu")
    if row["device"] == "cuda" and torch.cuda.is_available():
        device = torch.device("cuda")  # only there does a retrained head match
    set_switches(spec.network, device)
    torch.set_num_threads(row["threads"] or 1)  # the last digits depend on it
    return device


def describe_trial(row: Row, spec: TrialSpec, trained: TrainedNetwork | None) -> dict[str, Any]:
    """Return what the record of an export says of a trial."""
    values = {name: row[name] for name in row if row[name] is not None}
    # For imported features and logits, the spec describes the data.
    manifest: Mapping[str, Any] = {} if trained is None else trained.manifest
    metrics = {name: values[name] for name in filter(is_metric_column, values)}
    used = [plugin for plugin in plugins.in_use() if plugin.content in spec.plugins]
    return {
        "samples": manifest.get("samples", 0),
        "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        "flags": list(filter(None, (row["flags"] or "").split(","))),
        "trained_on": {"dataset": spec.data.dataset, "splits": manifest.get("data")},
        "plugins": {plugin.name: plugin.content for plugin in used},
        "circumstances": {name: values[name] for name in _PROVENANCE if name in values},
    }


def _chosen(out: AnyPath, trial: str | None, best: str | None) -> Row:
    if trial is not None and best is not None:
        raise UserError("selects a trial, and so does `best`; give one of them", setting="trial")
    if trial is None and is_search(out):
        if best is not None:
            raise UserError(
                f"{out} contains a search, which selected by its own metrics; leave `best` out, or "
                "select a trial with `trial`"
            )
        return _chosen_by_search(out)
    rows = read_done(out, is_required=True)
    if best is not None:
        return _best(out, rows, best)
    if trial is not None:
        matches = [row for row in rows if trial and row["spec_hash"].startswith(trial)]
        if len(matches) != 1:
            raise UserError(
                f"{out} contains {format_count(len(matches), 'finished trial')} whose spec hash "
                f"begins with {trial!r}; see the column spec_hash of its trials"
            )
        return matches[0]
    if len(rows) > 1:
        raise UserError(
            f"{out} contains {len(rows)} finished trials; select one with `trial` HASH (e.g. "
            f"{rows[0]['spec_hash']}) or `best` METRIC, which is judged on select"
        )
    return rows[0]


def read_done(out: AnyPath, is_required: bool = False) -> list[Row]:
    """Return the rows of the finished trials of a run by rung and seed."""
    rows = [row for row in read_table(out, "trials").to_pylist() if row["status"] == "done"]
    if is_required and not rows:
        raise UserError(
            f"{out} contains no finished trial; give the folder of one run or one search"
        )
    return sorted(rows, key=lambda row: (row["rung"], row["network_seed"], row["head_seed"] or 0))


def _best(out: AnyPath, rows: list[Row], best: str) -> Row:
    """Return the best trial on ``select``; on test, the result would be biased by the choice."""
    split, _, name = best.rpartition("/")
    if split not in ("", "select"):
        raise UserError(
            f"{best}: trials are selected on select, never on {split}; use `best` {name}",
            setting="best",
        )
    metric = METRICS[name]
    if metric.direction is None:
        raise UserError(f"{best}: {name} {NO_BEST}", setting="best")
    key, sign = column("select", name), 1 if metric.is_less_better else -1
    usable = [row for row in rows if row.get(key) is not None and not is_never_best([row["flags"]])]
    if not usable:
        raise UserError(
            f"{out}: no finished trial has {key}, or all are at chance or trivial controls"
        )
    return min(usable, key=lambda row: (sign * row[key], row["spec_hash"]))


def _chosen_by_search(out: AnyPath) -> Row:
    evaluation = out / EVALUATION
    if (manifest := RunManifest.find(evaluation)) is not None:
        # By the planned rungs, not the finished ones: in an interrupted evaluation, the baseline is
        # not the choice, unless the choice is cross entropy with its defaults.
        has_choice = any(rung.label == CHOSEN for rung in manifest.rungs)
        label = CHOSEN if has_choice else BASELINE
        for row in read_done(evaluation):
            if row["rung_label"] == label:
                return row
    try:
        outcome = SearchOutcome.read(out)
    except FileNotFoundError:
        raise UserError(f"{out} has no outcome yet; first run: tune-calib resume {out}") from None
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; write it again: tune-calib report {out}") from None
    if outcome.asked != read_search_manifest(out).trials:  # the search was extended since
        raise UserError(f"{out} is not finished; first run: tune-calib resume {out}")
    within = {record.number: record for record in outcome.suggestions if record.is_within}
    if outcome.chosen is None or outcome.chosen not in within:
        raise UserError(f"{out}: no trial keeps the accuracy, so none is selected; use `trial`")
    rows = {row["spec_hash"]: row for row in read_done(out, is_required=True)}
    for spec_hash in within[outcome.chosen].specs:
        if spec_hash in rows:
            return rows[spec_hash]
    raise UserError(f"{out} has lost the rows of its selected trial, {outcome.chosen}; use `trial`")


def _classifier_of(
    row: Row,
    spec: TrialSpec,
    store: Store,
    development: Callable[[], Development],
    device: torch.device,
) -> Classifier:
    classifier = ensure_classifier(spec, store, development, device)
    metrics = classifier.select
    if metrics and (bank := _stored_bank(spec, store, development, device)) is not None:
        # Evaluated again: a plug-in's method may store less than it needs to predict.
        metrics = judged(classifier, bank)
    if not _matches(metrics, row):
        # Stored by a run on another machine that shares the store.
        classifier = train_again(spec, store, development, device)
        store_classifier(store, spec, classifier.tensors, classifier.select)
        metrics = classifier.select
    if not _matches(metrics, row):
        raise UserError(
            f"{row['rung_label']}: on select its NLL is {metrics['select/nll']:.6f} now and was "
            f"{row['select/nll']:.6f} in its trial; give the `store` and `data_root` of the run, "
            "on the machine that ran it"
        )
    return classifier


def _matches(metrics: Mapping[str, float], row: Row) -> bool:
    names = {column("select", metric) for metric in WATCHED} & metrics.keys()
    return all(math.isclose(metrics[name], row[name], abs_tol=_CLOSE) for name in names)


def _stored_bank(
    spec: TrialSpec, store: Store, development: Callable[[], Development], device: torch.device
) -> DevelopmentBank | None:
    identity = bank_key(spec, spec.head).identity
    if spec.data.import_record is None and not store.holds("banks", identity):
        return None
    return open_bank(spec, store, development, device)


def _describe(row: Row, written: Sequence[Path]) -> str:
    split = "test" if row.get("test/ece") is not None else "select"
    label = f"{row['rung_label']} (trial {row['spec_hash']}, network seed {row['network_seed']})"
    lines = [f"{label} on {split}:"]
    is_changed = row["head"] or row["posthoc"]
    for name in ("accuracy", "nll", "ece"):
        key = column(split, name)
        text = f"  {METRICS[name].title:10}{format_value(name, row[key])}"
        # Imported logits lack the metrics of the uncalibrated network.
        if is_changed and (uncalibrated := row.get(f"{BASE}/{key}")) is not None:
            text += f" (before calibration {format_value(name, uncalibrated)})"
        lines.append(text)
    lines.append(f"written: {', '.join(map(str, written))}")
    if split == "select":
        lines.append("no test metrics: a search does not read test; see tune-calib evaluate")
    return "\n".join(lines)
