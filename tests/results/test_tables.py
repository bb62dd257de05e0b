import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.results.tables import read_table, write_results


def row(**values):
    return {"schema_version": 1, "spec_hash": "a", "status": "done", **values}


def test_written_tables_are_read_back(tmp_path):
    write_results(tmp_path, "one", {"trials": [row(**{"test/ece": 0.25})]})
    write_results(tmp_path, "two", {"trials": [row(spec_hash="b", **{"select/nll": 1.5})]})
    table = read_table(tmp_path, "trials")
    assert table["spec_hash"].to_pylist() == ["a", "b"]
    assert table["test/ece"].to_pylist() == [0.25, None]
    assert read_table(tmp_path, "curves").num_rows == 0


def test_a_column_that_is_no_metric_is_refused(tmp_path):
    with pytest.raises(ValueError, match="test/eec"):
        write_results(tmp_path, "one", {"trials": [row(**{"test/eec": 0.1})]})


def test_a_file_of_a_later_schema_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tune_calib.results.tables.SCHEMA_VERSION", 2)  # the next one
    write_results(tmp_path, "one", {"trials": [row()]})
    monkeypatch.undo()
    with pytest.raises(UserError, match="schema 2"):
        read_table(tmp_path, "trials")


def test_a_file_that_is_not_ours_is_named(tmp_path):
    (tmp_path / "trials").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "trials" / "foreign.parquet")
    with pytest.raises(DamagedFileError, match=r"foreign\.parquet is not a complete"):
        read_table(tmp_path, "trials")


@pytest.mark.parametrize("table", ["trials", "bins", "curves"])
def test_a_flipped_bit_is_refused(tmp_path, table):
    rows = [row(spec_hash=f"{i}", **{"test/ece": i / 100}) for i in range(50)]
    bins = [{"spec_hash": f"{i}", "split": "test", "bin": i, "count": i} for i in range(50)]
    curves = [{"spec_hash": "a", "epoch": i, "name": "loss", "value": i / 7} for i in range(50)]
    write_results(tmp_path, "one", {"trials": rows, "bins": bins, "curves": curves})
    path = tmp_path / table / "one.parquet"
    content = path.read_bytes()
    assert read_table(tmp_path, table).num_rows == 50
    for bit in random.Random(1).sample(range(8 * len(content)), 200):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedFileError, match=r"one\.parquet"):
            read_table(tmp_path, table, columns=["spec_hash"])
