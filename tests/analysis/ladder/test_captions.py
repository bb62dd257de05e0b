"""What stands beside numbers is computed from the rows that they are of."""

import json

import pandas as pd
import pytest

from analysis.figure import LADDER_FIGURES
from analysis.ladder.figures.tradeoff import cost_table
from analysis.ladder.means import ladder_table, mean_over
from analysis.ladder.results import LadderResults
from analysis.ladder.tables import ladder, plan, trials
from analysis.load import load
from analysis.report import write_report
from tests import fake_results
from tests.support import drive, sample, small_spec
from tune_calib.api.calls import open_results
from tune_calib.results.tables import read_table, write_results
from tune_calib.spec.names import FLAGS, HEAD_BELOW
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker

RIVALS = ("base", "variant", "variant", "variant")


def captions(out):
    results = LadderResults(load(out), "t")
    figures = (LADDER_FIGURES[name] for name in LADDER_FIGURES)
    return {figure.name: (figure.title, figure.full_caption(results)) for figure in figures}


@pytest.mark.parametrize(
    "lost",
    sample([((),), (("1-0",),), (("1-0", "2-0", "2-1"),), (("1-1", "2-1", "3-1", "0-1"),)], 1),
)
@pytest.mark.parametrize(
    ("seeds", "kinds"),
    sample([(1, RIVALS), (2, fake_results.KINDS), (6, RIVALS), (6, fake_results.KINDS)], 2),
)
def test_captions_count_the_present_trials(tmp_path, kinds, seeds, lost):
    fake_results.write(tmp_path, seeds=seeds, kinds=kinds)
    for name in lost:
        (tmp_path / "trials" / f"{name}.parquet").unlink(missing_ok=True)
    sweep, texts = load(tmp_path), captions(tmp_path)
    numbers = sorted({int(n) for n in ladder_table(sweep)["n"] if n})
    span = f"{numbers[0]}" + (f" to {numbers[-1]}" if len(numbers) > 1 else "")
    assert f"n = {span} trial" in texts["confidence"][1]
    trials = f"{seeds} seeds of network and head" if seeds > 1 and not lost else f"n = {span} trial"
    for name in ("tradeoff", "reliability"):
        assert trials in texts[name][1] or "1 seed: no spread" in texts[name][1]
    of_q = len(sweep.of_rung(2))  # the only rung whose curves move
    assert not of_q or f"n = {of_q} trial" in texts["sparsity"][1]
    has_spread = [name for name, (_, text) in texts.items() if "mean ± sd" in text.lower()]
    assert has_spread == (["ood", "reliability", "tradeoff"] if numbers[-1] > 1 else [])
    assert ("± sd" in mean_over(sweep)) == (numbers[-1] > 1)
    for name in ("prototypes", "norm_confidence"):
        assert texts[name][1].endswith("the one with the smallest seeds.")
    if kinds == RIVALS:
        blocks = min(filter(None, (len(sweep.of_rung(index)) for index in sweep.labels)))
        assert f"blocks: {blocks}; a block is a network seed." in texts["critical_difference"][1]


def measured(out, **changes):
    """Trials of the first two rungs with a time; ``changes`` by the hash of a spec."""
    rows = read_table(out, "trials").to_pylist()
    timed = {"wall_s": 30.0, "population": 1, "peak_memory_bytes": 2**30}
    rows = [row | timed | changes.get(row["spec_hash"], {}) for row in rows if row["rung"] < 2]
    write_results(out, "~timed", {"trials": rows})
    for path in (out / "trials").glob("[0-9]*.parquet"):
        path.unlink()
    return load(out)


def test_costs_are_medians_and_post_hoc_methods_exclude_their_network(tmp_path):
    fake_results.write(tmp_path, seeds=3)
    posthoc = {"head": None, "posthoc": "{}"}
    table = cost_table(measured(tmp_path)).set_index(["rung", "quantity"])
    assert table.index.to_list() == [(0, "memory_mib"), (1, "memory_mib")]
    rows = {"1-0": posthoc | {"own_s": 0.5}, "1-1": posthoc | {"own_s": 0.75}}
    table = cost_table(measured(tmp_path, **rows)).set_index(["rung", "quantity"])
    assert table.loc[(1, "own_s"), ["n", "median"]].tolist() == [2, 0.625]
    text = captions(tmp_path)["cost"][1]
    assert "n = 2 to 3 trials of each rung" in text
    assert "Bars show medians" in text


def test_a_trial_has_the_seconds_of_its_own_work(trained, tmp_path):
    run = Provenance(out=str(tmp_path), store=str(trained.root), git_revision=None).plain()
    slots = small_spec().model_dump(mode="json", exclude_none=True)

    def work(name, *specs):
        trials = [{"spec": spec, "rung": k, "label": "x"} for k, spec in enumerate(specs)]
        kind = "head" if "head" in specs[0] else "network"
        return {"job": {"name": name, "kind": kind, "trials": trials}, "run": run}

    def driven(actor):
        drive(actor)
        actor.cleanup()
        return {row["rung"]: row for row in read_table(tmp_path, "trials", actor.name).to_pylist()}

    posthoc = slots | {"posthoc": {"method": "temperature"}}
    network = driven(NetworkWorker(work("net", slots, posthoc)))
    # Its training is that of the store; this Ray trial only read it.
    assert network[0]["own_s"] > network[0]["wall_s"] - 1
    assert network[1]["own_s"] < network[1]["wall_s"]
    assert network[1]["own_s"] < network[0]["own_s"]
    heads = [
        slots | {"head": {"method": "retrain", "epochs": 2, "augment": "none", "seed": seed}}
        for seed in range(2)
    ]
    ended = driven(HeadWorker(work("heads", *heads)))
    assert ended[0]["own_s"] == ended[1]["own_s"]
    assert 0 < 2 * ended[0]["own_s"] < ended[0]["wall_s"]
    # Made by the first of them, and told by each that stands on it.
    assert ended[0]["bank_s"] == ended[1]["bank_s"] > 0
    assert network[0]["bank_s"] is None
    first = HeadWorker(work("first", *heads))
    first.step()
    first.save_checkpoint(str(tmp_path))
    again = HeadWorker(work("again", *heads))
    again.load_checkpoint(str(tmp_path))
    assert [row["own_s"] for row in driven(again).values()] == [None, None]


def with_heads(out, lost, error=0.01, epochs=20):
    """A run whose heads of rung 2 lose some accuracy to their networks."""
    fake_results.write(out)
    head = {"method": "retrain", "epochs": epochs, "optimizer": "adam", "lr": 1e-4,
            "batch_size": 256}  # fmt: skip
    for path in (out / "trials").glob("2-*.parquet"):
        fake_results.set_cells(
            path,
            {
                "head_method": "retrain", "head": json.dumps(head), "test/accuracy": 0.84 - lost,
                "base/test/accuracy": 0.84, "test/confidence_gap_se": error,
                "base/test/confidence_gap_se": error,
            },
        )  # fmt: skip
    return out


@pytest.mark.parametrize(
    ("lost", "error", "is_told"),
    sample([(0.18, 0.01, True), (0.04, 0.001, False), (0.06, 0.01, True), (0.06, 0.03, False),
     (-0.18, 0.01, False)],
    1),
)  # fmt: skip
def test_heads_far_below_their_network_have_a_remark(tmp_path, lost, error, is_told):
    with_heads(tmp_path, lost, error)
    results = open_results(tmp_path)
    line = "+ two: 3 of 3 heads far less accurate on test than the network "
    line += f"({84 - 100 * lost:.2f} %"
    texts = [results.table(), *results.remarks]
    if abs(lost) == 0.18:  # far on either side of the bound
        texts += [write_report(tmp_path), (tmp_path / "report.html").read_text()]
    for text in texts:
        assert (line in text) == is_told or text == results.table()
    assert bool(results.remarks) == is_told
    if is_told:
        assert "optimiser adam, lr 0.0001, batch 256, epochs 20" in results.remarks[0]
    sign = FLAGS[HEAD_BELOW].sign
    assert (f"+ two {sign}" in results.table()) == is_told
    flags = results.rows.groupby("rung")["flags"].agg(set)
    assert flags[2] == ({HEAD_BELOW} if is_told else {""})
    assert flags[1] == {""}


def test_a_head_below_its_network_changes_no_number(tmp_path):
    first, second = (with_heads(tmp_path / name, lost) for name, lost in (("a", 0.18), ("b", 0.02)))
    for out in (first, second):
        for path in (out / "trials").glob("2-*.parquet"):
            fake_results.set_cells(path, {"test/accuracy": 0.66})
    pd.testing.assert_frame_equal(
        ladder_table(load(first)).drop(columns="flags"),
        ladder_table(load(second)).drop(columns="flags"),
    )


def test_the_rows_of_a_comparison_are_methods_the_best_of_them_first(tmp_path):
    fake_results.write(tmp_path, kinds=RIVALS)
    ladder_rows = ladder(load(tmp_path))
    compared = fake_results.with_manifest(load(tmp_path), ladder="compare a, b, c, d")
    table = ladder(compared)
    assert (ladder_rows.heads[0], table.heads[0]) == ("rung", "method")
    assert "ΔECE before" in ladder_rows.heads
    assert "ΔECE before" not in table.heads
    assert "mean ± sd over 3 seeds of network and head. Best" in table.caption
    assert "ΔECE base: change of the mean ECE from vanilla, in points." in table.notes
    eces = [row["ECE (%) ↓"].value for row in table.records]
    assert eces == sorted(eces)
    for listing in (plan(compared), trials(compared)):
        assert "rung" not in listing.heads
