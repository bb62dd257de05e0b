"""Write the logits of some samples of finished trials for figures."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from tune_calib.engine.extra import ExtraEvaluation
from tune_calib.engine.machine import require_environment, set_switches
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.files.store import Store
from tune_calib.results.tables import read_slots, read_table, write_table
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import only_driver

SAMPLES = 500


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
    name, label = row["spec_hash"], row["rung_label"]
    if (out / "logits" / f"{name}.parquet").exists():
        return f"{label}: logits exist"
    spec = TrialSpec.build(**read_slots(row))
    require_environment(spec)
    set_switches(spec.network, device)
    torch.set_num_threads(row["threads"] or 1)  # the last digits depend on it
    evaluation = ExtraEvaluation(spec, store, data_root, device)
    evaluation.refuse_other(spec, {key: row[key] for key in ("test/accuracy", "test/ece")})
    test = evaluation.bank.test()
    logits = evaluation.classifier(spec).uncalibrated(test.features, test.logits)[0].cpu()
    # Evenly spaced over the split.
    count = len(test.labels)
    positions = torch.linspace(0, count - 1, min(SAMPLES, count)).round().long()
    columns = {
        "spec_hash": [name] * len(positions),
        "label": test.labels[positions].numpy(),
        "logits": list(logits[positions].half().numpy()),
    }
    write_table(out, "logits", name, content=pa.table(columns))
    return f"{label}: logits of {len(positions)} samples"
