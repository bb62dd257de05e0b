"""Records of single samples: as the losses saw them, safe against a kill, summarised rightly."""

import pandas as pd
import pyarrow as pa
import pytest
import torch

from analysis.ladder.results import sample_statistics
from analysis.report import write_report
from tests import fake_results
from tests.support import CPU, sample
from tune_calib.data.splits import load_development
from tune_calib.engine import artifacts
from tune_calib.engine.artifacts import NetworkTraining, read_samples
from tune_calib.errors import DamagedFileError
from tune_calib.files.store import Store
from tune_calib.results.tables import SCHEMAS, write_results
from tune_calib.spec.trial import TrialSpec

EPOCHS = 3


def spec_of(**params):
    network = {"method": "fedlas_ls", "epochs": EPOCHS, "batch_size": 16, "params": params}
    return TrialSpec.build(data={"train_fraction": 0.3}, network=network)


def records(spec, store, killed_each_epoch=False):
    development = load_development(spec.data, None)
    run = NetworkTraining(spec, store, development, CPU)
    while run.step() is not None:
        if killed_each_epoch:
            run.close()
            run = NetworkTraining(spec, store, development, CPU)
    run.close()
    return read_samples(store, spec.network_id, EPOCHS, spec.hash)


@pytest.mark.parametrize("gate", sample(["learned", "random"], 1))
def test_a_run_killed_at_every_epoch_loses_no_record(gate, tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "CHECKPOINT_S", 0)
    spec = spec_of(gate=gate)
    whole = records(spec, Store(tmp_path / "whole"))
    killed = records(spec, Store(tmp_path / "killed"), killed_each_epoch=True)
    assert whole.equals(killed)
    sizes = whole.group_by(["split", "epoch"]).aggregate([("sample", "count")]).to_pandas()
    development = load_development(spec.data, None)
    for split in ("train", "select"):
        counts = sizes.loc[sizes["split"] == split, "sample_count"].tolist()
        assert counts == [len(getattr(development, split))] * EPOCHS


def test_the_record_is_what_the_loss_used(tmp_path):
    table = records(spec_of(gate="oracle"), Store(tmp_path)).to_pandas()
    assert ((table["gate"] == -1) == table["correct"]).all()
    train = table[table["split"] == "train"]
    assert train.groupby("epoch")["sample"].is_monotonic_increasing.all()
    # Batches are normalised by moments that contain them with weight theta = 0.95.
    assert abs(train.loc[train["epoch"] == EPOCHS, "indicator"].astype(float).mean()) < 0.1


def test_the_confidence_is_the_largest_probability(tmp_path):
    spec, store = spec_of(indicator="max_prob", normalise=False), Store(tmp_path)
    table = records(spec, store).to_pandas()
    assert (table["confidence"] == table["indicator"]).all()


def test_an_epoch_that_is_absent_is_one_line(tmp_path):
    spec, store = spec_of(), Store(tmp_path)
    records(spec, store)
    (store.folder("samples", spec.network_id) / "0002" / "tensors.safetensors").unlink()
    with pytest.raises(DamagedFileError, match="0002"):
        read_samples(store, spec.network_id, EPOCHS, spec.hash)


def seen(spec_hash) -> pa.Table:
    """The record of four and four samples in two epochs."""
    frame = pd.DataFrame(
        {
            "spec_hash": spec_hash,
            "split": "train",
            "epoch": [1] * 4 + [2] * 4,
            "sample": [0, 1, 2, 3, 0, 1, 2, 9],
            "gate": [1, 1, -1, 0, 1, -1, 1, 1],
            "indicator": [0.0, 1.0, 2.0, 3.0, 5.0, 5.0, 5.0, 5.0],
            "confidence": [0.0, 0.5, 0.75, 1.0, 0.5, 0.5, 0.5, 0.75],
            "correct": [False, False, True, True, True, True, False, True],
        }
    )
    columns = {name: frame[name].to_numpy() for name in frame}
    return pa.table(columns).cast(SCHEMAS["samples"])


def test_records_of_no_trial_that_is_done_are_no_table(tmp_path):
    fake_results.write(tmp_path)
    write_results(tmp_path, "one", {"trials": []}, seen("of a trial that diverged"))
    write_report(tmp_path)
    assert (tmp_path / "report.html").exists()
    assert not (tmp_path / "tables" / "samples.md").exists()


def test_statistics_of_a_table_worked_by_hand(tmp_path):
    write_results(tmp_path, "one", {"trials": []}, seen("a"))
    first, second = sample_statistics(tmp_path).to_dict("records")
    assert (first["n"], first["accuracy"], first["over"], first["under"]) == (4, 0.5, 0.5, 0.25)
    assert pd.isna(first["flipped"])
    pair = torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 1.0, 1.0]])
    assert first["pearson"] == pytest.approx(torch.corrcoef(pair)[0, 1].item())
    # The same numbers are ranks but for a shift and ties: Spearman is Pearson of them.
    assert first["spearman"] == pytest.approx(first["pearson"])
    assert first["confidence_pearson"] == pytest.approx(0.9827, abs=1e-4)
    assert first["confidence_spearman"] == pytest.approx(1)
    assert second["flipped"] == pytest.approx(2 / 3)  # sample 9 was not seen before
    assert pd.isna(second["pearson"])
    assert pd.isna(second["spearman"])
