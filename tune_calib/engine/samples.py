"""Per-sample records of a method for each epoch, stored as artifacts.

Each epoch has a folder that is written before the checkpoint of the epoch, so that a run that is
killed and resumed writes the same folders again and loses none.
"""

import pyarrow as pa
import torch
from torch import Tensor

from tune_calib.engine.store import Store, nest, read_tensors, unnest, write_tensors
from tune_calib.results.tables import SCHEMAS

KIND = "samples"


def write_epoch(
    store: Store, network_id: str, epoch: int, samples: dict[str, dict[str, Tensor]]
) -> None:
    """Write the results of ``NetworkMethod.samples_seen`` in an epoch (1-based), by split."""
    tensors: dict[str, Tensor] = {}
    for split, record in samples.items():
        if not record:
            continue
        correct = record["correct"]
        # Shuffled batches list their samples; a split evaluated as a whole is in its own order.
        sample = record.get("sample", torch.arange(len(correct), device=correct.device))
        order = sample.argsort()
        # Norms are unbounded, and float16 would turn large values into infinity.
        largest = torch.finfo(torch.float16).max
        columns = {
            "sample": sample[order].int(),
            "gate": record["gate"][order].round().to(torch.int8),
            "indicator": record["indicator"][order].clamp(-largest, largest).half(),
            "confidence": record["confidence"][order].half(),
            "correct": correct[order],
        }
        tensors |= nest(split, columns)
    if tensors:
        write_tensors(store.folder(KIND, network_id) / f"{epoch:04d}", tensors, {})


def read_epochs(store: Store, network_id: str, epochs: int, spec_hash: str) -> pa.Table:
    """Return the per-sample records of a network as rows of the ``samples`` table."""
    schema, folder = SCHEMAS["samples"], store.folder(KIND, network_id)
    tables = [schema.empty_table()]
    for epoch in range(1, epochs + 1) if folder.exists() else ():
        tensors, _ = read_tensors(folder / f"{epoch:04d}")
        for split in sorted({name.partition(".")[0] for name in tensors}):
            columns = {name: tensor.numpy() for name, tensor in unnest(split, tensors).items()}
            size = len(columns["correct"])
            # Epochs written by an earlier version of this program have no confidence.
            columns.setdefault("confidence", pa.nulls(size))
            same = {"spec_hash": spec_hash, "split": split, "epoch": epoch}
            columns |= {name: pa.repeat(value, size) for name, value in same.items()}
            tables.append(pa.table({name: columns[name] for name in schema.names}).cast(schema))
    return pa.concat_tables(tables).unify_dictionaries()
