"""The columns of the result tables: types and meanings, for their schemas and the documentation."""

from functools import partial
from typing import Literal, NamedTuple

import pyarrow as pa

TableName = Literal["trials", "curves", "bins", "samples", "logits", "intervals", "shifts"]


class Column(NamedTuple):
    """A column, with its stored type and its meaning without a full stop."""

    type: pa.DataType
    meaning: str
    is_later: bool = False  # whether it was added later and is null in files that lack it


_text, _truth = partial(Column, pa.string()), partial(Column, pa.bool_())
_int32, _int64 = partial(Column, pa.int32()), partial(Column, pa.int64())
_number = partial(Column, pa.float64())
_HASH = "identity of the trial, as in `trials`"
# The type of a column with many rows, one per (network, epoch, sample).
_WORD = pa.dictionary(pa.int32(), pa.string())

# `trials` also has columns `split/metric`; each file has those of its rows.
COLUMNS: dict[TableName, dict[str, Column]] = {
    "trials": {
        "schema_version": _int32("version of these columns"),
        "spec_hash": _text("identity of the trial: 16 digits of the SHA-256 of its spec"),
        "network_id": _text("identity of its network: hash of the slots data and network"),
        "sweep": _text("identity of the run"),
        "ladder": _text("name of the ladder, or `compare` or `search` and the methods"),
        "rung": _int32("index of the rung or suggestion; -1 for the baseline of a search"),
        "rung_label": _text("label in tables"),
        "data": _text("slot of the trial spec, as canonical JSON"),
        "network": _text("slot of the trial spec, as canonical JSON"),
        "head": _text("slot of the trial spec, as canonical JSON; null without one"),
        "posthoc": _text("slot of the trial spec, as canonical JSON; null without one"),
        "dataset": _text("name of the data set"),
        "backbone": _text("name of the backbone"),
        "network_method": _text("method of the network"),
        "head_method": _text("method of the head; null without one"),
        "posthoc_method": _text("post-hoc method; null without one"),
        "calib_samples": _int64("number of samples of calib; null if it was not evaluated", True),
        "network_seed": _int64("seed of the network"),
        "head_seed": _int64("seed of the head; null without one"),
        "split_seed": _int64("seed of the draw of the splits; null for the published draw", True),
        "status": _text("`done` or `diverged`; a trial that crashed has no row"),
        "message": _text("why the trial is not done"),
        "flags": _text("warnings about its numbers, joined by commas"),
        "epoch": _int32("epoch whose weights were evaluated, or at which it ended; starts at 1"),
        "population": _int32("number of heads that were trained together"),
        "wall_s": _number("seconds of its Ray trial, including the set-up"),
        "peak_memory_bytes": _int64(
            "peak memory of the process, which may have run other trials before; of the GPU if "
            "there is one"
        ),
        "device": _text("`cpu` or `cuda`; `replay` if a table answered the trial"),
        "threads": _int32("number of torch threads"),
        "processor": _text("model of the processor"),
        "instruction_set": _text("instruction set that torch uses"),
        "gpu": _text("model of the GPU; null without one"),
        "deterministic": _truth("whether all algorithms were deterministic, as on a CPU"),
        "execution": _text(
            "execution of the steps of training: `eager`, `graph` or `compiled`, with `: refused` "
            "and the reason where `auto` took eager steps instead; null if not known",
            True,
        ),
        "actor_resets": _int32("number of Ray trials that its process had run before"),
        "versions": _text("versions of Python and libraries, as JSON"),
        "git_revision": _text("commit of the program, followed by `+` if files were changed"),
        "own_s": _number("seconds of training and evaluation; null if not known"),
        "recipe": _text("name of the recipe, and what replaced its settings; or null"),
        "plugins": _text("its plug-ins, as JSON of names and content hashes; or null"),
        "data_digest": _text(
            "digest of all images and labels of its data set, equal for every layout of the same "
            "images; null for imported data, whose record has one"
        ),
        "numbers": _int32("generation of the program's numbers; null for the first"),
        "code": _text("only of earlier versions; else null"),
        "bank_s": _number("seconds for the feature bank of its head; null if not known"),
    },
    "curves": {
        "spec_hash": _text(_HASH),
        "epoch": _int32("starts at 1"),
        "name": _text("name of the quantity, such as `select/ece`, `q`, `tau` or `temperature`"),
        "value": _number("its value"),
    },
    "bins": {
        "spec_hash": _text(_HASH),
        "split": _text("split of the counted samples"),
        "bin": _int32("number of the bin in order of confidence; starts at 0"),
        "lower": _number("lower edge, not included in the bin"),
        "upper": _number("upper edge, included in the bin"),
        "count": _int64("number of samples in the bin"),
        "confidence": _number("their mean confidence"),
        "accuracy": _number("fraction of them that are classified correctly"),
    },
    "samples": {
        "spec_hash": Column(_WORD, _HASH),
        "split": Column(_WORD, "`train` or `select`"),
        "epoch": Column(pa.int16(), "starts at 1"),
        "sample": _int32("position in the split"),
        "gate": Column(pa.int8(), "1: more smoothing at large indicators, -1: less, 0: tie"),
        "indicator": Column(pa.float16(), "indicator as used by the loss"),
        "confidence": Column(pa.float16(), "largest probability"),
        "correct": _truth("whether the predicted class is correct"),
    },
    "intervals": {
        "spec_hash": _text(_HASH),
        "split": _text("split whose samples were resampled, usually `test`"),
        "metric": _text("name of the metric"),
        "lower": _number("lower end of the 95 % interval"),
        "upper": _number("upper end of the 95 % interval"),
        "se": _number("standard error over the resamples"),
        "resamples": _int32("number of resamples"),
        "draws": Column(
            pa.list_(pa.float32()),
            "its value on each resample; the resamples are the same for every trial, for paired "
            "differences; null for other metrics",
        ),
    },
    "shifts": {
        "spec_hash": _text(_HASH),
        "set": _text(
            "`ood/SET`; `corrupt/KIND/SEVERITY` for published files, `generated/KIND/SEVERITY` for "
            "generated corruptions"
        ),
        "metric": _text("name of the metric"),
        "value": _number("its value; NaN if a logit is not finite"),
        "resamples": _int32("number of resamples; null if none were requested"),
        "draws": Column(
            pa.list_(pa.float32()),
            "its value on each resample, with the test samples of `intervals` and the same foreign "
            "images for every trial; null for other metrics and without resamples",
        ),
    },
    "logits": {
        "spec_hash": _text(_HASH),
        "label": _int32("class of the test sample"),
        "logits": Column(pa.list_(pa.float16()), "its logits, one per class"),
    },
}
