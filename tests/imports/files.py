"""Files of features and logits, in every format."""

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

FORMATS = ("npz", "safetensors", "parquet", "h5", "hdf5")


def write(path, **arrays):
    """Write arrays to a file of the format that its name ends in."""
    kind = path.suffix
    if kind == ".npz":
        np.savez(path, **arrays)
    elif kind == ".safetensors":
        save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path)
    elif kind == ".parquet":
        pq.write_table(pa.table({k: _column(v) for k, v in arrays.items()}), path)
    elif kind in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    return path


def _column(values):
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(values.reshape(-1), values.shape[1])


def outputs(samples, classes=4, seed=0):
    """Logits and labels that have something to do with each other."""
    chance = np.random.RandomState(seed)
    labels = chance.randint(classes, size=samples)
    labels[:classes] = range(classes)
    logits = chance.randn(samples, classes) + 2 * np.eye(classes)[labels]
    return {"logits": 3 * logits.astype(np.float32), "labels": labels}


def features(samples, width=6, classes=4, seed=0):
    """Features and labels of ``outputs`` under ``head``."""
    chance = np.random.RandomState(seed)
    labels = chance.randint(classes, size=samples)
    labels[:classes] = range(classes)
    values = chance.randn(samples, width) + 2 * np.eye(classes, width)[labels]
    return {"features": values.astype(np.float32), "labels": labels}


def head(width=6, classes=4):
    return {"weight": 2 * np.eye(classes, width, dtype=np.float32), "bias": np.ones(classes, "f4")}
