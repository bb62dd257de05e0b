"""Write the logits of some samples of finished trials for figures."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.classifier import ensure_classifier
from tune_calib.engine.extra import network_behind
from tune_calib.engine.machine import require_environment, set_switches
from tune_calib.engine.predict import predict
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.files.store import Store
from tune_calib.metrics.summary import under_corruption
from tune_calib.results.tables import read_slots, read_table, write_table
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import only_driver

SAMPLES = 500
_CLOSE = 1e-6  # on the same kind of machine, a classifier gives the same digits


def take_pictures(
    out: AnyPath, store: AnyPath, data_root: Path | None, device: str = "cpu", every: bool = False
) -> list[str]:
    """Write missing ``logits`` of one finished trial of each rung, or of all; list them."""
    trials = read_table(out, "trials").to_pylist()
    rows = [row for row in trials if row["status"] == "done" and row.get("test/ece") is not None]
    if not rows:
        raise UserError(f"{out} contains no trial with numbers on test; name a run folder")
    chosen: dict[Any, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda r: (r["rung"], r["network_seed"], r["head_seed"] or 0)):
        key = row["spec_hash"] if every else row["rung"]
        chosen.setdefault(key, row)
    take = partial(
        _picture, out=out, store=Store(store), data_root=data_root, device=torch.device(device)
    )
    with only_driver(out):
        return list(map(take, chosen.values()))


def _picture(
    row: dict[str, Any], out: AnyPath, store: Store, data_root: Path | None, device: torch.device
) -> str:
    name = row["spec_hash"]
    if (out / "logits" / f"{name}.parquet").exists():
        return f"{row['rung_label']}: logits exist"
    spec = TrialSpec.build(**read_slots(row))
    require_environment(spec)
    set_switches(spec.network, device)
    test = load_test(spec.data, data_root, store.images).to(device)
    torch.set_num_threads(row["threads"] or 1)  # the last digits depend on it
    development = partial(load_development, spec.network_data, data_root, store.images)
    trained = network_behind(spec, store, development, device=device)
    classifier = ensure_classifier(spec, store, development, device=device)
    info = spec.data.info.of_test()
    outputs = predict(trained.method, trained.network, test.images, info=info)
    logits, calibrated = classifier.uncalibrated(*outputs)[0], classifier(*outputs)[0]
    metrics = {"accuracy": math.nan, "ece": math.nan}
    if calibrated.isfinite().all():
        metrics = under_corruption(calibrated, test.labels)
    for metric in ("accuracy", "ece"):
        old, new = row[f"test/{metric}"], metrics[metric]
        if not math.isclose(new, old, abs_tol=_CLOSE):
            raise UserError(
                f"{row['rung_label']}: test {metric} is now {new:.6f}, but was {old:.6f} in its "
                "trial; name the `store` and `data_root` of the run, on the machine that ran it"
            )
    # Evenly spaced over the split.
    positions = torch.linspace(0, len(test) - 1, min(SAMPLES, len(test))).round().long()
    columns = {
        "spec_hash": [name] * len(positions),
        "label": test.labels.cpu()[positions].numpy(),
        "logits": list(logits.cpu()[positions].half().numpy()),
    }
    write_table(out, "logits", name, content=pa.table(columns))
    return f"{row['rung_label']}: logits of {len(positions)} samples"
