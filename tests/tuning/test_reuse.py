"""Rows of trials that another folder of results holds are taken, and those alone."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tune_calib.errors import UserError
from tune_calib.results.tables import NUMBERS, SCHEMAS, read_table, write_results, write_table
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.folder import done
from tune_calib.tuning.reuse import Copies, copy_rows, find_rows

NO_COPIES = Copies({}, None)


def copy_found(planned, out, among, sweep, ladder, sets, copies):
    """Copy the rows of other folders, as a run does; return whether there are any."""
    folders = find_rows(planned, out, among, copies)
    copy_rows(folders, planned, out, sweep, ladder, sets)
    return bool(folders)


ASKED = ResolvedRequest(
    {"data": {"dataset": "digits"}}, Seeds((0, 1), (0, 1), is_paired=True)
).with_recipe()
FIRST = expand(build_comparison(("ce", "ce+mac_cal")), ASKED)
SECOND = expand(build_comparison(("ls", "ce+temperature", "ce+mac_cal")), ASKED)
COMMON = {t.spec.hash for t in FIRST} & {t.spec.hash for t in SECOND}


def row(trial, **own):
    nothing = dict.fromkeys(SCHEMAS["trials"].names)
    told = {"spec_hash": trial.spec.hash, "status": "done", "rung": trial.rung, "sweep": "first",
            "rung_label": trial.label, "ladder": "first", "test/ece": 0.1,
            "numbers": NUMBERS}  # fmt: skip
    return nothing | told | own


def written(out, trials=FIRST, **own):
    for index, trial in enumerate(trials):
        spec_hash = {"spec_hash": trial.spec.hash}
        curves = [{**spec_hash, "epoch": 1, "name": "q", "value": 0.5}]
        half = np.float16(0.5)  # pyarrow takes a float for it from 21 on
        samples = pa.Table.from_pylist(
            [{**spec_hash, "split": "train", "epoch": 1, "sample": 3, "gate": 1, "indicator": half,
              "confidence": half, "correct": True}], schema=SCHEMAS["samples"],
        )  # fmt: skip
        tables = {"trials": [row(trial, **own)], "curves": curves, "bins": []}
        write_results(out, f"trial-{index}", tables, samples)
        ends = {"lower": 0.0, "upper": 1.0, "se": 0.1, "resamples": 100, "draws": [0.1, 0.2]}
        of_test = {**spec_hash, "split": "test", "metric": "ece", **ends}
        write_table(out, "intervals", f"trial-{index}", pa.Table.from_pylist([of_test]))
        sets = ("ood/noise", "ood/cifar100", "generated/fog/1", "generated/fog/2")
        shifts = [{**spec_hash, "set": name, "metric": "ece", "value": 0.2} for name in sets]
        write_table(out, "shifts", f"trial-{index}", pa.Table.from_pylist(shifts))
    (out / "sweep.json").write_text("{}")


def reused_folder(tmp_path, planned=SECOND, sets=()):
    copies = Copies({}, None)
    copy_found(planned, tmp_path / "b" / "own", tmp_path, "second", "compare", sets, copies)
    return tmp_path / "b" / "own"


def test_reused_rows_get_the_names_of_the_new_run(tmp_path):
    written(tmp_path / "a" / "first")
    folder = reused_folder(tmp_path)
    assert len(COMMON) == 2
    rows = {r["spec_hash"]: r for r in read_table(folder, "trials").to_pylist()}
    assert set(rows) == COMMON
    for trial in SECOND:
        if trial.spec.hash in COMMON:
            row = rows[trial.spec.hash]
            assert (row["rung"], row["rung_label"]) == (trial.rung, trial.label)
            assert (row["sweep"], row["ladder"]) == ("second", "compare")
            assert row["test/ece"] == 0.1
    for table in ("curves", "samples", "intervals"):
        content = read_table(folder, table)
        assert set(content["spec_hash"].to_pylist()) == COMMON
    draws = read_table(folder, "intervals")["draws"].to_pylist()
    assert draws == [pytest.approx([0.1, 0.2])] * 2


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((), set()),
        (("ood/noise",), {"ood/noise"}),
        (("ood/cifar10",), set()),
        (("generated/fog",), {"generated/fog/1", "generated/fog/2"}),
    ],
)
def test_only_requested_shift_sets_are_reused(asked, expected, tmp_path):
    written(tmp_path / "a" / "first")
    sets = read_table(reused_folder(tmp_path, sets=asked), "shifts")["set"].to_pylist()
    assert set(sets) == expected


@pytest.mark.parametrize(
    "changed", [{"status": "crashed"}, {"status": "diverged"}, {"plugins": json.dumps({"x": "1"})}]
)
def test_unfinished_and_foreign_plug_in_rows_are_not_reused(changed, tmp_path):
    written(tmp_path / "a" / "first", **changed)
    assert done(reused_folder(tmp_path)) == set()


def test_reuse_adds_only_rows_written_since(tmp_path):
    ours = [t for t in FIRST if t.spec.hash in COMMON]
    written(tmp_path / "a" / "first", ours[:1])
    folder = reused_folder(tmp_path)
    assert len(done(folder)) == 1
    written(tmp_path / "a" / "first", ours)
    assert set(find_rows(SECOND, folder, tmp_path, NO_COPIES)) == {ours[1].spec.hash}
    assert done(reused_folder(tmp_path)) == COMMON
    assert find_rows(SECOND, folder, tmp_path, NO_COPIES) == {}
    names = sorted(path.name for path in folder.rglob("*"))
    reused_folder(tmp_path)
    assert sorted(path.name for path in folder.rglob("*")) == names


def test_reuse_is_optional_and_skips_the_own_folder(tmp_path):
    written(tmp_path / "a" / "first")
    assert find_rows(SECOND, tmp_path / "b" / "own", None, NO_COPIES) == {}
    assert find_rows(FIRST[:1], tmp_path / "a" / "first", tmp_path, NO_COPIES) == {}


def test_folders_with_different_numbers_of_a_trial_are_refused(tmp_path):
    written(tmp_path / "a" / "first")
    written(tmp_path / "a" / "second")
    assert set(find_rows(SECOND, tmp_path / "b" / "own", tmp_path, NO_COPIES)) == COMMON
    written(tmp_path / "a" / "second", **{"test/ece": 0.3})
    with pytest.raises(UserError, match=r"different numbers in .*a/first and .*a/second"):
        reused_folder(tmp_path)
