"""Arrays in users' files: what is read is what was written."""

import contextlib
import pickle
import random
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.imports.files import FORMATS, write
from tests.support import sample
from tune_calib.data.arrays import ROLES, arrays_in, find_arrays
from tune_calib.errors import DamagedFileError, UserError

MATRIX = np.random.RandomState(0).randn(23, 5).astype(np.float32)
LABELS = np.arange(23) % 5


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_gives_what_was_written(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", logits=MATRIX, labels=LABELS)
    arrays = arrays_in(path)
    assert {"logits", "labels"} == set(arrays)
    logits = arrays["logits"].read()
    assert (logits.shape, logits.dtype) == (MATRIX.shape, np.float32)
    assert np.array_equal(logits, MATRIX)
    assert np.array_equal(arrays["labels"].read(), LABELS)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "i4", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files_of_any_layout_are_read(tmp_path, save, order, dtype):
    values = np.asarray(MATRIX.astype(dtype), order=order)
    save(tmp_path / "a.npz", logits=values)
    assert np.array_equal(arrays_in(tmp_path / "a.npz")["logits"].read(), values)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_read(tmp_path, order):
    np.save(tmp_path / "mine.npy", np.asarray(MATRIX, order=order))
    (name, array), *others = arrays_in(tmp_path / "mine.npy").items()
    assert (name, others) == ("mine", [])
    assert isinstance(array.read(), np.memmap)
    assert np.array_equal(array.read(), MATRIX)


def test_bfloat16_safetensors_are_read(tmp_path):
    from safetensors.torch import save_file

    values = torch.from_numpy(MATRIX).bfloat16()
    save_file({"logits": values}, tmp_path / "a.safetensors")
    array = arrays_in(tmp_path / "a.safetensors")["logits"]
    assert np.array_equal(array.read(), values.float().numpy())


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list])
def test_parquet_lists_of_any_kind_are_read(tmp_path, list_of):
    lists = pa.array(MATRIX.tolist(), list_of(pa.float64()))
    table = pa.table({"logits": lists, "label": LABELS, "file": ["x"] * 23})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    arrays = arrays_in(tmp_path / "a.parquet")
    assert set(arrays) == {"logits", "label"}
    assert np.array_equal(arrays["logits"].read(), MATRIX)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([[1.0, 2.0], [1.0]], "differ in length"),
        ([[1.0, 2.0], [1.0, 2.0, 3.0]], "differ in length"),
        ([[1.0], None], "is missing"),
    ],
)
def test_parquet_without_a_shape_is_refused(tmp_path, logits, message):
    pq.write_table(pa.table({"logits": logits, "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(DamagedFileError, match=message):
        arrays_in(tmp_path / "a.parquet")["logits"].read()


class Trap:
    """What an unpickled file would run."""

    def __reduce__(self):
        return (sys.exit, ("a pickle was run",))


@pytest.mark.parametrize("name", ["a.pt", "a.pth", "a.pkl", "a.npz", "a.npy", "a.h5", "a.parquet"])
def test_nothing_is_unpickled(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="savez"):  # noqa: PT012
        for array in arrays_in(tmp_path / name).values():
            array.read()


@pytest.mark.parametrize("name", ["a.npz", "a.npy"])
def test_object_arrays_are_refused(tmp_path, name):
    values = np.array([Trap(), Trap()], dtype=object)
    (np.savez if name == "a.npz" else np.save)(tmp_path / name, values)
    array = find_arrays("`test`", [f"logits={tmp_path / name}"], ROLES)["logits"]
    with pytest.raises(DamagedFileError, match=r"(Object arrays|Python objects).*savez"):
        array.read()


def test_other_arrays_of_an_npz_file_are_ignored(tmp_path):
    beside = {"epoch": np.int64(3), "paths": np.array([Trap(), None], dtype=object)}
    path = write(tmp_path / "a.npz", logits=MATRIX, labels=LABELS, **beside)
    arrays = find_arrays("`test`", [str(path)], ROLES)
    assert {"logits", "labels"} == set(arrays)


def test_texts_of_an_hdf5_file_are_ignored(tmp_path):
    path = write(tmp_path / "a.h5", logits=MATRIX, labels=LABELS, names=["cat", "dog"])
    assert {"logits", "labels"} == set(find_arrays("`test`", [str(path)], ROLES))


@pytest.mark.parametrize("how", ["external storage", "virtual", "an external link", "a soft link"])
def test_numbers_of_other_files_are_not_read_from_hdf5(tmp_path, how):
    secret = write(tmp_path / "secret.h5", logits=MATRIX)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["labels"] = LABELS
        if how == "external storage":
            file.create_dataset("logits", (8,), "u1", external=[(str(secret), 0, 8)])
        elif how == "virtual":
            layout = h5py.VirtualLayout(MATRIX.shape, MATRIX.dtype)
            layout[:] = h5py.VirtualSource(str(secret), "logits", MATRIX.shape)
            file.create_virtual_dataset("logits", layout)
        elif how == "an external link":
            file["logits"] = h5py.ExternalLink(str(secret), "logits")
        else:
            file["logits"] = h5py.SoftLink("/labels")
    assert arrays_in(path).keys() == {"labels"}


def test_a_safetensors_file_may_hold_eight_bit_arrays(tmp_path):
    from safetensors.torch import save_file

    eight = torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn)
    save_file({"logits": torch.from_numpy(MATRIX), "q": eight}, tmp_path / "a.safetensors")
    arrays = arrays_in(tmp_path / "a.safetensors")
    assert np.array_equal(arrays["logits"].read(), MATRIX)
    assert arrays["q"].read().tolist() == [0.5, 2.0]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_one_line(tmp_path, kind, share):
    path = write(tmp_path / f"a.{kind}", logits=MATRIX, labels=LABELS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DamagedFileError) as error:  # noqa: PT012
        for array in arrays_in(path).values():
            array.read()
    assert "\n" not in str(error.value)


def test_a_missing_file_or_another_format_is_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        arrays_in(tmp_path / "a.npz")
    with pytest.raises(UserError, match="is not one of"):
        arrays_in(tmp_path / "a.csv")


def test_roles_are_named_by_name_by_file_and_by_key(tmp_path):
    one = write(tmp_path / "one.npz", probs=MATRIX, y=LABELS, other=MATRIX)
    np.save(tmp_path / "lone.npy", MATRIX)
    assert set(find_arrays("`test`", [str(one)], ROLES)) == {"probs", "labels"}
    arrays = find_arrays("`test`", [f"logits={one}:other", f"labels={one}:y"], ROLES)
    assert {k: str(v) for k, v in arrays.items()} == {
        "logits": f"{one}:other",
        "labels": f"{one}:y",
    }
    assert set(find_arrays("`test`", [f"features={tmp_path}/lone.npy"], ROLES)) == {"features"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("logits={one}:absent", "has no 'absent'; it has logits, labels"),
        ("logits={one}", "has several arrays"),
    ],
)
def test_missing_keys_are_refused(tmp_path, text, message):
    one = write(tmp_path / "one.npz", logits=MATRIX, labels=LABELS)
    with pytest.raises(UserError, match=message):
        find_arrays("`test`", [text.format(one=one)], ROLES)


def test_the_home_of_nobody_is_one_line():
    with pytest.raises(UserError, match="no such user"):
        find_arrays("`test`", ["~nobody-of-this-name/a.npz"], ROLES)


def test_two_arrays_of_one_role_are_refused(tmp_path):
    one = write(tmp_path / "one.npz", label=LABELS, targets=LABELS)
    with pytest.raises(UserError, match="are both labels"):
        find_arrays("`test`", [str(one)], ROLES)


def test_without_h5py_it_is_one_line(tmp_path, monkeypatch):
    path = write(tmp_path / "a.h5", logits=MATRIX)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"pip install tune-calib\[hdf5\]"):
        arrays_in(path)


@pytest.mark.parametrize("seed", sample(range(60), 2))
@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_with_flipped_bits_is_read_or_is_one_line(tmp_path, kind, seed):
    path = write(tmp_path / f"a.{kind}", logits=MATRIX, labels=LABELS)
    content, chance = path.read_bytes(), random.Random(seed)
    used = [at for at in range(len(content)) if content[at]]
    for _ in range(5):
        flipped = bytearray(content)
        flipped[chance.choice(used)] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with contextlib.suppress(UserError):
            for array in arrays_in(path).values():
                array.read()
