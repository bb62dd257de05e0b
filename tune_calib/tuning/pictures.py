"""Write the logits of some samples of finished trials for figures."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.extra import FinishedTrial, spread_out
from tune_calib.engine.machine import require_environment, set_switches
from tune_calib.engine.store import Store
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table, write_table
from tune_calib.spec.names import SLOTS
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import only_driver

SAMPLES = 500
_CLOSE = 1e-6  # on the same kind of machine, a classifier gives the same digits


def take_pictures(
    out: AnyPath, store: AnyPath, data_root: Path | None, device: str = "cpu"
) -> list[str]:
    """Write the missing ``logits`` of a finished trial of each rung; return a line for each."""
    trials = read_table(out, "trials").to_pylist()
    rows = [row for row in trials if row["status"] == "done" and row.get("test/ece") is not None]
    if not rows:
        raise UserError(f"{out} contains no trial with numbers on test; name a run folder")
    first: dict[int, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda r: (r["rung"], r["network_seed"], r["head_seed"] or 0)):
        first.setdefault(row["rung"], row)
    with only_driver(out):
        return [_picture(row, out, Store(store), data_root, device) for row in first.values()]


def _picture(
    row: dict[str, Any], out: AnyPath, store: Store, data_root: Path | None, device: str
) -> str:
    name = row["spec_hash"]
    if (out / "logits" / f"{name}.parquet").exists():
        return f"{row['rung_label']}: logits exist"
    spec = TrialSpec.build(**{slot: json.loads(row[slot]) for slot in SLOTS if row[slot]})
    require_environment(spec)
    set_switches(spec.network, torch.device(device))
    development = load_development(spec.data, data_root, store.images).to(device)
    test = load_test(spec.data, data_root, store.images).to(device)
    torch.set_num_threads(row["threads"] or 1)  # the last digits depend on it
    trial = FinishedTrial(spec, store, development, torch.device(device))
    logits = trial.logits(test)
    evaluation = trial.judge(logits)
    for metric in ("accuracy", "ece"):
        before = row[f"test/{metric}"]
        now = evaluation.metrics[f"test/{metric}"] if evaluation else math.nan
        if not math.isclose(now, before, abs_tol=_CLOSE):
            raise UserError(
                f"{row['rung_label']}: test {metric} is now {now:.6f}, but was {before:.6f} in its "
                "trial; name the `store` and `data_root` of the run, on the machine that ran it"
            )
    positions = spread_out(len(test), SAMPLES)
    columns = {
        "spec_hash": [name] * len(positions),
        "label": logits.labels.cpu()[positions].numpy(),
        "logits": list(logits.logits[0].cpu()[positions].half().numpy()),
    }
    write_table(out, "logits", name, pa.table(columns))
    return f"{row['rung_label']}: logits of {len(positions)} samples"
