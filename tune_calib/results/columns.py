"""The columns of the result tables with their types and meanings.

The schemas of the Parquet files and the page of the documentation are made from them.
"""

from typing import Literal, NamedTuple

import pyarrow as pa

TableName = Literal[
    "trials", "curves", "bins", "samples", "corruptions", "logits", "intervals", "shifts"
]


class Column(NamedTuple):
    """A column, with its stored type and its meaning without a full stop."""

    type: pa.DataType
    meaning: str


_HASH = "identity of the trial, as in `trials`"
# The type of a column with many rows, one per (network, epoch, sample).
_WORD = pa.dictionary(pa.int32(), pa.string())

# `trials` has columns `split/metric` too: each file has those of its rows.
COLUMNS: dict[TableName, dict[str, Column]] = {
    "trials": {
        "schema_version": Column(pa.int32(), "version of these columns"),
        "spec_hash": Column(
            pa.string(),
            "identity of the trial: 16 hexadecimal digits of the SHA-256 of its trial spec",
        ),
        "network_id": Column(
            pa.string(), "identity of its network: hash of the slots data and network"
        ),
        "sweep": Column(pa.string(), "identity of the run"),
        "ladder": Column(
            pa.string(),
            "name of the ladder, or `compare` and the pipelines, or `search` and the method",
        ),
        "rung": Column(
            pa.int32(), "index of the rung or suggestion; -1 for the baseline of a search"
        ),
        "rung_label": Column(pa.string(), "label in tables"),
        "data": Column(pa.string(), "slot of the trial spec, as canonical JSON"),
        "network": Column(pa.string(), "slot of the trial spec, as canonical JSON"),
        "head": Column(pa.string(), "slot of the trial spec, as canonical JSON; null without one"),
        "posthoc": Column(
            pa.string(), "slot of the trial spec, as canonical JSON; null without one"
        ),
        "dataset": Column(pa.string(), "name of the data set"),
        "backbone": Column(pa.string(), "name of the backbone"),
        "network_method": Column(pa.string(), "method of the network"),
        "head_method": Column(pa.string(), "method of the head, or null"),
        "posthoc_method": Column(pa.string(), "post-hoc method, or null"),
        "network_seed": Column(pa.int64(), "seed of the network"),
        "head_seed": Column(pa.int64(), "seed of the head, or null"),
        "status": Column(pa.string(), "`done`, `diverged`, `crashed` or `stopped`"),
        "message": Column(pa.string(), "why a trial is not done"),
        "flags": Column(
            pa.string(),
            "warnings about its numbers, joined by commas; null in results of early versions",
        ),
        "epoch": Column(
            pa.int32(), "epoch whose weights were evaluated, or at which it ended; starts at 1"
        ),
        "population": Column(pa.int32(), "heads that were trained together"),
        "wall_s": Column(pa.float64(), "seconds of its Ray trial, including the set-up"),
        "peak_memory_bytes": Column(
            pa.int64(),
            "peak of the process, which may have run other trials before; of the GPU if "
            "there is one",
        ),
        "device": Column(pa.string(), "`cpu` or `cuda`"),
        "threads": Column(pa.int32(), "torch threads"),
        "processor": Column(pa.string(), "model of the processor"),
        "instruction_set": Column(pa.string(), "instruction set that torch uses"),
        "gpu": Column(pa.string(), "model of the GPU, or null"),
        "deterministic": Column(
            pa.bool_(),
            "whether only deterministic algorithms were used, which is always so on a CPU; null in "
            "results of early versions",
        ),
        "actor_resets": Column(pa.int32(), "number of Ray trials that its process had run before"),
        "versions": Column(pa.string(), "versions of Python and libraries, as JSON"),
        "git_revision": Column(
            pa.string(), "commit of the program, followed by `+` if files were changed"
        ),
        "own_s": Column(
            pa.float64(),
            "seconds of training and evaluation, without set-up and waiting; null if they are not "
            "known, as in results of early versions",
        ),
        "recipe": Column(
            pa.string(),
            "name of the recipe, and the settings that replaced its own; null without a recipe",
        ),
        "plugins": Column(
            pa.string(),
            "plug-ins that it depends on, as JSON of names and content hashes; null without any",
        ),
        "data_digest": Column(
            pa.string(),
            "digest of all images and labels of its data set, equal for every layout of the same "
            "images; null for imported data, whose record has one, and in results of early "
            "versions",
        ),
        "numbers": Column(
            pa.int32(),
            "version of the numbers of the program, raised when a trial of the same spec gets "
            "different ones; null in results of early versions, which have version 1",
        ),
        "bank_s": Column(
            pa.float64(),
            "seconds in which the feature bank of its head was computed; null without a head, or "
            "if they are not known, as in results of early versions",
        ),
    },
    "curves": {
        "spec_hash": Column(pa.string(), _HASH),
        "epoch": Column(pa.int32(), "starts at 1"),
        "name": Column(
            pa.string(), "name of the quantity, such as `select/ece`, `q`, `tau` or `temperature`"
        ),
        "value": Column(pa.float64(), "its value"),
    },
    "bins": {
        "spec_hash": Column(pa.string(), _HASH),
        "split": Column(pa.string(), "split whose samples are counted"),
        "bin": Column(pa.int32(), "number of the bin by rising confidence; starts at 0"),
        "lower": Column(pa.float64(), "lower edge, not in the bin"),
        "upper": Column(pa.float64(), "upper edge, in the bin"),
        "count": Column(pa.int64(), "samples in the bin"),
        "confidence": Column(pa.float64(), "their mean confidence"),
        "accuracy": Column(pa.float64(), "fraction of them that is classified correctly"),
    },
    "samples": {
        "spec_hash": Column(_WORD, _HASH),
        "split": Column(_WORD, "`train` or `select`"),
        "epoch": Column(pa.int16(), "starts at 1"),
        "sample": Column(pa.int32(), "position in the split"),
        "gate": Column(
            pa.int8(), "1: more smoothing where the indicator is large, -1: less, 0: tie"
        ),
        "indicator": Column(pa.float16(), "indicator as the loss uses it"),
        "confidence": Column(
            pa.float16(), "largest probability; null in results of early versions"
        ),
        "correct": Column(pa.bool_(), "whether the predicted class is correct"),
    },
    "corruptions": {
        "spec_hash": Column(pa.string(), _HASH),
        "kind": Column(
            pa.string(),
            "kind of corruption, or FOLDER/KIND in a published set. Early versions wrote this "
            "table, which `shifts` has replaced",
        ),
        "severity": Column(pa.int32(), "1 to 5"),
        "accuracy": Column(pa.float64(), "on the corrupted test split"),
        "ece": Column(pa.float64(), "on the corrupted test split"),
    },
    "intervals": {
        "spec_hash": Column(pa.string(), _HASH),
        "split": Column(pa.string(), "split whose samples were resampled, usually `test`"),
        "metric": Column(pa.string(), "name of the metric"),
        "lower": Column(pa.float64(), "lower end of the 95 % interval"),
        "upper": Column(pa.float64(), "upper end of the 95 % interval"),
        "se": Column(pa.float64(), "standard error over the resamples"),
        "resamples": Column(pa.int32(), "number of resamples"),
        "draws": Column(
            pa.list_(pa.float32()),
            "its value on each resample, the same for every trial, as paired differences need; "
            "null for other metrics and in results of early versions",
        ),
    },
    "shifts": {
        "spec_hash": Column(pa.string(), _HASH),
        "set": Column(
            pa.string(),
            "`ood/SET`; `corrupt/KIND/SEVERITY` for published files, `generated/KIND/SEVERITY` for "
            "generated corruptions",
        ),
        "metric": Column(pa.string(), "name of the metric"),
        "value": Column(pa.float64(), "its value; NaN if a logit is not finite"),
        "resamples": Column(pa.int32(), "number of resamples; null if none were requested"),
        "draws": Column(
            pa.list_(pa.float32()),
            "its value on each resample, with the test samples of `intervals`, and the same "
            "foreign images for every trial; null for other metrics and without resamples",
        ),
    },
    "logits": {
        "spec_hash": Column(pa.string(), _HASH),
        "label": Column(pa.int32(), "class of the test sample"),
        "logits": Column(pa.list_(pa.float16()), "its logits, one per class"),
    },
}
