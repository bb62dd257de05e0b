"""Every column of every result table: its type and what it holds, written once, here.

The schemas of the Parquet files and the page of the documentation are made from this.
"""

from typing import Literal, NamedTuple

import pyarrow as pa

TableName = Literal[
    "trials", "curves", "bins", "samples", "corruptions", "logits", "intervals", "shifts"
]


class Column(NamedTuple):
    """A column.

    Attributes:
        type: as it is stored.
        meaning: what it holds, without a full stop.
    """

    type: pa.DataType
    meaning: str


_HASH = "identity of the trial, of its row in `trials`"
# One row a (network, epoch, sample): hence narrow types.
_WORD = pa.dictionary(pa.int32(), pa.string())

# Metrics stand in `trials` too, as `split/metric`, and not here: each file has those of its rows.
COLUMNS: dict[TableName, dict[str, Column]] = {
    "trials": {
        "schema_version": Column(pa.int32(), "version of these columns"),
        "spec_hash": Column(
            pa.string(),
            "identity of the trial: 16 hexadecimal digits of the SHA-256 of its trial spec",
        ),
        "network_id": Column(pa.string(), "identity of its network: hash of data and network"),
        "sweep": Column(pa.string(), "identity of the sweep or the search it was run for"),
        "ladder": Column(
            pa.string(),
            "name of the ladder; of others `compare` and the pipelines, or `search` and the method",
        ),
        "rung": Column(
            pa.int32(), "index of the rung, or of the suggestion; -1: the baseline of a search"
        ),
        "rung_label": Column(pa.string(), "how tables name it"),
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
            "warnings beside its numbers, joined by commas; null in results of before there were "
            "any",
        ),
        "epoch": Column(
            pa.int32(), "epoch whose weights were evaluated, or at which it ended; 1-based"
        ),
        "population": Column(pa.int32(), "heads that were trained together"),
        "wall_s": Column(pa.float64(), "seconds of its Ray trial, with setting up"),
        "peak_memory_bytes": Column(
            pa.int64(),
            "peak of the process, which may have run other trials before; of the GPU"
            " where there is one",
        ),
        "device": Column(pa.string(), "`cpu` or `cuda`"),
        "threads": Column(pa.int32(), "torch threads"),
        "processor": Column(pa.string(), "model of the processor"),
        "instruction_set": Column(pa.string(), "what torch computes with on it"),
        "gpu": Column(pa.string(), "model of the GPU, or null"),
        "deterministic": Column(
            pa.bool_(),
            "whether only deterministic algorithms computed it, as on a CPU always; null in "
            "results of before it was recorded",
        ),
        "actor_resets": Column(pa.int32(), "Ray trials that its process had run before"),
        "versions": Column(pa.string(), "of Python and of libraries, as JSON"),
        "git_revision": Column(
            pa.string(), "commit of the program, `+` behind it if files were changed"
        ),
        "own_s": Column(
            pa.float64(),
            "seconds of training and evaluation, without setting up and waiting; null where they "
            "are not known, as in results of before they were recorded",
        ),
        "recipe": Column(
            pa.string(),
            "name of the recipe, and what was asked for instead of what it sets; null where "
            "there was none, and in results of before there were any",
        ),
        "plugins": Column(
            pa.string(),
            "plug-ins behind it, as JSON of their names and content hashes; null without any, and "
            "in results of before there were any",
        ),
        "data_digest": Column(
            pa.string(),
            "digest of all images and labels of its data set, the same for every layout of the "
            "same images; null of imported data, whose record has one, and in results of before "
            "it was recorded",
        ),
        "numbers": Column(
            pa.int32(),
            "version of the numbers of the program, raised when a trial of the same spec gets "
            "others; null in results of before it was recorded, which are of version 1",
        ),
        "bank_s": Column(
            pa.float64(),
            "seconds in which the feature bank under its head was made; null without a head, and "
            "where they are not known, as in results of before they were recorded",
        ),
    },
    "curves": {
        "spec_hash": Column(pa.string(), _HASH),
        "epoch": Column(pa.int32(), "1-based"),
        "name": Column(
            pa.string(), "what was recorded, such as `select/ece`, `q`, `tau` or `temperature`"
        ),
        "value": Column(pa.float64(), "its value"),
    },
    "bins": {
        "spec_hash": Column(pa.string(), _HASH),
        "split": Column(pa.string(), "the split whose samples are counted"),
        "bin": Column(pa.int32(), "0-based, by rising confidence"),
        "lower": Column(pa.float64(), "lower edge, outside the bin"),
        "upper": Column(pa.float64(), "upper edge, inside the bin"),
        "count": Column(pa.int64(), "samples in the bin"),
        "confidence": Column(pa.float64(), "their mean confidence"),
        "accuracy": Column(pa.float64(), "share of them that is right"),
    },
    "samples": {
        "spec_hash": Column(_WORD, _HASH),
        "split": Column(_WORD, "`train` or `select`"),
        "epoch": Column(pa.int16(), "1-based"),
        "sample": Column(pa.int32(), "position in the split"),
        "gate": Column(
            pa.int8(), "1: smoothed more where the indicator is large, -1: less, 0: tie"
        ),
        "indicator": Column(pa.float16(), "as the loss uses it"),
        "confidence": Column(
            pa.float16(), "largest probability; null in results of before it was recorded"
        ),
        "correct": Column(pa.bool_(), "whether the predicted class is right"),
    },
    "corruptions": {
        "spec_hash": Column(pa.string(), _HASH),
        "kind": Column(
            pa.string(),
            "kind of corruption; of a published set FOLDER/KIND. Earlier versions wrote this "
            "table, whose place `shifts` has taken",
        ),
        "severity": Column(pa.int32(), "1 to 5"),
        "accuracy": Column(pa.float64(), "on the corrupted test split"),
        "ece": Column(pa.float64(), "on the corrupted test split"),
    },
    "intervals": {
        "spec_hash": Column(pa.string(), _HASH),
        "split": Column(pa.string(), "the split whose samples were drawn again, as a rule `test`"),
        "metric": Column(pa.string(), "name of the metric"),
        "lower": Column(pa.float64(), "lower end of the 95 % interval"),
        "upper": Column(pa.float64(), "upper end of the 95 % interval"),
        "se": Column(pa.float64(), "standard error over the draws"),
        "resamples": Column(pa.int32(), "how many draws"),
        "draws": Column(
            pa.list_(pa.float32()),
            "its value on each draw, the same draws for every trial: what paired differences need; "
            "null for metrics that are not kept, and in results of before they were",
        ),
    },
    "shifts": {
        "spec_hash": Column(pa.string(), _HASH),
        "set": Column(
            pa.string(),
            "`ood/SET`; `corrupt/KIND/SEVERITY` of published files, `generated/KIND/SEVERITY` of "
            "corruptions that were made here",
        ),
        "metric": Column(pa.string(), "name of the metric"),
        "value": Column(pa.float64(), "its value; NaN where a logit is not finite"),
        "resamples": Column(
            pa.int32(), "how many draws; null where none were asked for, and in results of before"
        ),
        "draws": Column(
            pa.list_(pa.float32()),
            "its value on each draw, the test samples drawn as in `intervals`, foreign images "
            "alike for every trial; null for metrics that are not kept, and without draws",
        ),
    },
    "logits": {
        "spec_hash": Column(pa.string(), _HASH),
        "label": Column(pa.int32(), "class of a test sample"),
        "logits": Column(pa.list_(pa.float16()), "its logits, one a class"),
    },
}
