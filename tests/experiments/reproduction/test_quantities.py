"""What claims are about beside metrics: one number of each trial, shown in its unit."""

import numpy as np
import pyarrow as pa
import pytest

from analysis.ladder.results import LadderResults
from analysis.load import load
from analysis.reproduction.files import write_reproduction
from analysis.reproduction.quantities import QUANTITIES, printed_of, with_quantities
from analysis.reproduction.tables import SEEDS_ONLY, compare_with_print
from analysis.text import Cell
from tests import fake_results
from tests.support import sample
from tune_calib.results.tables import write_table
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import Claim, Reproduction, Run

TABLE = Reproduction(
    name="maccal/table4",
    title="Invented",
    entries={"ladder": Run(ladder="mac_cal")},
    metrics=("cost_ratio", "total_s", "q_last", "ece"),
    claims=(Claim("+ one", (), "over_change", kind="sign", text="it falls"),),
    scales={},
    published="maccal/table4",
    figures=("sparsity", "ood"),
)


@pytest.fixture
def out(tmp_path):
    """Trials of three seeds with seconds, gates and logits; q of them is of ``fake_results``."""
    folder = tmp_path / "a"
    fake_results.write(folder, seeds=3)
    fake_results.add_network_check(folder)
    for path in sorted((folder / "trials").glob("*.parquet")):
        is_head = path.stem[0] != "0"
        cells = {"own_s": 10.0, "bank_s": 1.0} if is_head else {"own_s": 100.0}
        fake_results.set_cells(path, {**cells, "peak_memory_bytes": 2**30})
    chance = np.random.default_rng(0)
    logits = {"label": [0, 1, 2] * 4, "logits": list(chance.normal(size=(12, 3)))}
    write_table(folder, "logits", "1-0", pa.table({"spec_hash": ["1-0"] * 12, **logits}))
    rows = [
        {"spec_hash": "1-0", "split": split, "epoch": epoch, "sample": sample,
         "gate": 1 if sample < epoch else -1, "indicator": float(sample),
         "confidence": 0.1 * sample, "correct": sample > 1}
        for split in ("train", "select") for epoch in (1, 2, 3) for sample in range(4)
    ]  # fmt: skip
    write_table(folder, "samples", "1-0", pa.Table.from_pylist(rows))
    return folder


@pytest.mark.parametrize("name", sample(QUANTITIES, 5))
def test_a_quantity_is_one_number_of_a_trial(name, out):
    assert name not in METRICS
    sweep = load(out)
    found = QUANTITIES[name].of(LadderResults(sweep))
    assert found.index.is_unique
    assert set(found.index) <= set(sweep.trials["spec_hash"])
    assert len(found)
    column = with_quantities(sweep, [name, "ece"]).trials.set_index("spec_hash")[f"test/{name}"]
    assert column.dropna().to_dict() == pytest.approx(found.to_dict())
    assert printed_of(name).head
    assert Cell.number(printed_of(name), 0.5, 0.1).text.count("±") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("over_first", 0.25), ("over_last", 0.75), ("under_last", 0.25), ("over_change", 0.5),
        ("flipped_first", 0.25), ("confidence_spearman_last", 1.0), ("total_s", 111),
        ("cost_ratio", 1.11), ("memory_mib", 1024),
    ],
)  # fmt: skip
def test_the_numbers_are_those_of_the_records(name, value, out):
    found = QUANTITIES[name].of(LadderResults(load(out)))
    assert found["1-0"] == pytest.approx(value, abs=1e-3)


def test_q_settles_only_where_tau_leaves_it_a_choice(out):
    curves = {
        "1-0": ([0.5, 0.3, 0.4, 0.35], [0.2, 0.1, 0.05, 0.02]),  # always as far as tau allows
        "1-1": ([0.5, 0.3, 0.4, 0.38], [0.2, 0.1, 0.05, 0.02]),  # but once
        "1-2": ([0.5] * 4, [0.0] * 4),  # fixed
    }
    rows = [
        {"spec_hash": trial, "epoch": epoch, "name": name, "value": value}
        for trial, both in curves.items()
        for name, values in zip(("q", "tau"), both, strict=True)
        for epoch, value in enumerate(values, start=1)
    ]
    write_table(out, "curves", "q", pa.Table.from_pylist(rows))
    found = QUANTITIES["q_settling"].of(LadderResults(load(out)))
    assert found.filter(like="1-").to_dict() == pytest.approx({"1-1": -0.18, "1-2": 0.0})


def test_ratios_are_compared_with_published_ratios_and_seconds_are_not(out):
    sweep = fake_results.with_manifest(load(out), dataset="cifar10")
    rungs = [r.model_copy(update={"published": "MaC-Cal"}) for r in sweep.rungs[1:2]]
    sweep = fake_results.with_manifest(sweep, rungs=[sweep.rungs[0], *rungs])
    rows = compare_with_print(TABLE, "ladder", with_quantities(sweep, TABLE.metrics))
    own = rows[(rows["rung"] == "+ one") & (rows["paper_backbone"] == "resnet50")]
    ratio, seconds = (own[own["metric"] == m].iloc[0] for m in ("cost_ratio", "total_s"))
    assert ratio["paper"] == pytest.approx(14358 / 13691)
    assert ratio["difference"] == pytest.approx(1.11 - 14358 / 13691)
    assert seconds["paper"] == 14358
    assert np.isnan(seconds["difference"])


def test_verdicts_on_quantities_are_over_seeds_only(out):
    write_reproduction(TABLE, out.parent, {"a": "ladder"}, "tune-calib reproduce x")
    for name in ("claims.md", "claims.csv"):
        assert SEEDS_ONLY in (out.parent / name).read_text()
