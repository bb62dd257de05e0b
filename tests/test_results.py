import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.results import atomic_write, read_table, write_results


def row(**values):
    return {"schema_version": 1, "spec_hash": "a", "status": "done", **values}


def test_what_is_written_is_read(tmp_path):
    write_results(tmp_path, "one", {"trials": [row(**{"test/ece": 0.25})]})
    write_results(tmp_path, "two", {"trials": [row(spec_hash="b", **{"select/nll": 1.5})]})
    table = read_table(tmp_path, "trials")
    assert table["spec_hash"].to_pylist() == ["a", "b"]
    assert table["test/ece"].to_pylist() == [0.25, None]
    assert read_table(tmp_path, "curves").num_rows == 0


def test_an_empty_folder_is_an_empty_table(tmp_path):
    assert read_table(tmp_path / "nothing", "trials").num_rows == 0


def test_a_column_that_is_no_metric_is_refused(tmp_path):
    with pytest.raises(ValueError, match="test/eec"):
        write_results(tmp_path, "one", {"trials": [row(**{"test/eec": 0.1})]})


def test_a_half_written_file_is_named(tmp_path):
    write_results(tmp_path, "one", {"trials": [row()]})
    path = tmp_path / "trials" / "one.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedFileError, match=r"one\.parquet"):
        read_table(tmp_path, "trials")


def test_a_foreign_file_is_named(tmp_path):
    (tmp_path / "trials").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "trials" / "foreign.parquet")
    with pytest.raises(DamagedFileError, match=r"foreign\.parquet"):
        read_table(tmp_path, "trials")


def test_a_file_of_a_later_schema_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tune_calib.results.SCHEMA_VERSION", 99)
    write_results(tmp_path, "one", {"trials": [row()]})
    monkeypatch.undo()
    with pytest.raises(DamagedFileError, match="schema 99"):
        read_table(tmp_path, "trials")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        atomic_write(tmp_path / "file" / "x", b"")
