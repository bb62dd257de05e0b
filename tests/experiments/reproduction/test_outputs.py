"""What stands beside the results of a table: made of invented ones, and of real ones at `smoke`."""

import json
import re
from dataclasses import replace

import pandas as pd
import pytest

from analysis.ladder.tables import notes
from analysis.load import load
from analysis.reproduction.files import PAGE, Made, write_reproduction
from analysis.reproduction.overview import TABLES_PAGE, describe_tables, overview
from analysis.reproduction.tables import compare_with_print, describe_print
from tests import fake_results, support
from tests.support import Reader, here
from tune_calib.console import shown
from tune_calib.results.folders import LOCK
from tune_calib.results.manifests import RungRecord
from tune_calib.results.tables import read_table
from tune_calib.spec.reproduction import REPRODUCTIONS, Claim, Reproduction, Run

TABLE = Reproduction(
    name="maccal/table5",
    title="Invented",
    entries={"ladder": Run(ladder="mac_cal")},
    metrics=("accuracy", "ece"),
    claims=(
        Claim("+ two", ("vanilla",), text="it helps"),
        Claim("vanilla", ("+ two",), text="it hurts"),
    ),
    scales={},
    published="maccal/table5",
)
FILES = {"table.md", "table.tex", "table.csv", "claims.md", "claims.tex", "claims.csv", PAGE}


def test_differences_from_published_numbers_need_the_same_data_set(tmp_path):
    fake_results.write(tmp_path)
    sweep = load(tmp_path)
    digits = compare_with_print(TABLE, "ladder", sweep)
    assert set(digits["paper_dataset"]) == {"cifar10", "cifar100"}
    assert digits["difference"].isna().all()
    cifar = fake_results.with_manifest(sweep, dataset="cifar10")
    rows = compare_with_print(TABLE, "ladder", cifar)
    assert set(rows["paper_dataset"]) == {"cifar10"}
    own = rows[(rows["row"] == "+Masked Retraining") & (rows["metric"] == "ece")].iloc[0]
    assert own["paper"] == pytest.approx(0.0345)
    assert own["difference"] == pytest.approx(own["mean"] - 0.0345)
    assert rows[rows["rung"] == "control"]["paper"].isna().all()


def test_files_agree_with_the_verdicts(tmp_path):
    fake_results.write(tmp_path / "a", seeds=5)
    fake_results.add_network_check(tmp_path / "a")
    fake_results.add_intervals(tmp_path / "a", ["ece", "accuracy"])
    told = write_reproduction(TABLE, tmp_path, {"a": "ladder"}, "tune-calib reproduce x")
    text = shown(told)
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "a"}
    claims = pd.read_csv(tmp_path / "claims.csv")
    assert list(claims["claim"]) == [claim.text for claim in TABLE.claims]
    page = (tmp_path / PAGE).read_text()
    assert not Reader(page).open
    for outcome, claim in zip(claims["verdict"], claims["claim"], strict=True):
        for where in (text, page, (tmp_path / "claims.md").read_text()):
            assert outcome in where
            assert claim in where
    assert "tune-calib reproduce x" in page
    assert "over-confident by" in page
    assert "Vanilla" in (tmp_path / "table.tex").read_text()


def test_verdicts_on_equal_trials_count_once_for_each_kind_of_networks(tmp_path):
    fake_results.write(tmp_path, seeds=5)
    fake_results.add_network_check(tmp_path)
    fake_results.add_intervals(tmp_path, ["ece"])
    sweep = load(tmp_path)
    part = sweep.trials["data"].map(
        lambda text: json.dumps({**json.loads(text), "train_fraction": 0.05})
    )
    reduced = replace(sweep, trials=sweep.trials.assign(data=part))
    both = overview([Made(TABLE, [("ladder", sweep), ("ladder", reduced)], "x")])
    # Another table of the same trials adds no verdicts that have an interval.
    counts = r"all images +\| 0 +\| 0 +\| (\d) "
    twice = overview([Made(TABLE, [("ladder", sweep)], "x")] * 2)
    assert re.search(counts, both).group(1) == re.search(counts, twice).group(1) == "2"
    networks = r"\| all images +\|.*\| (\d+) +\|$"
    assert re.findall(networks, both, re.M)[-1] == re.findall(networks, twice, re.M)[-1] == "5"
    alone = overview([Made(TABLE, [("ladder", reduced)], "x")])
    assert not re.search(counts, alone)
    assert re.search(r"a part of them +\| 0 +\| 0 +\| 2 ", alone)


@pytest.mark.parametrize(
    ("over", "wheres"),
    [
        ("each", ["cifar10 small_cnn"] * 2 + ["svhn small_cnn"]),
        (
            "networks",
            ["cifar10 mean of 2 networks", *["(cifar10 small_cnn)"] * 2, "svhn small_cnn"],
        ),
        (
            "mean",
            ["mean of 3 data sets and networks", *["(cifar10 small_cnn)"] * 2, "(svhn small_cnn)"],
        ),
    ],
)
def test_a_claim_is_judged_over_what_it_is_about(over, wheres, tmp_path):
    fake_results.write(tmp_path)
    names = ("cifar10", "cifar10", "svhn")
    sweeps = [fake_results.with_manifest(load(tmp_path), dataset=name) for name in names]
    sweeps = [replace(run, out=run.out / str(index)) for index, run in enumerate(sweeps)]
    claim = replace(TABLE.claims[0], over=over)
    made = Made(TABLE.model_copy(update={"claims": (claim,)}), [("ladder", s) for s in sweeps], "x")
    shown = [f"({row.where})" if row.is_part else row.where for row in made.verdict_rows]
    assert shown == wheres


def test_a_verdict_on_a_claim_that_names_another_network_is_marked_and_not_counted(tmp_path):
    fake_results.write(tmp_path)
    run = fake_results.with_manifest(load(tmp_path), dataset="cifar10")
    networks = ("cifar10 small_cnn", "cifar100 resnet110")
    claims = tuple(replace(TABLE.claims[0], network=network) for network in networks)
    ours = replace(TABLE.claims[0], is_ours=True)
    table = TABLE.model_copy(update={"claims": (*claims, ours)})
    judged, elsewhere, not_in_the_paper = Made(table, [("ladder", run)], "x").verdict_rows
    assert [row.is_counted for row in (judged, elsewhere, not_in_the_paper)] == [True, False, False]
    assert elsewhere.outcome.startswith(f"({judged.verdict.outcome} elsewhere)")


FAST = ("fedlas/fig1c",)
OTHERS = [name for name in REPRODUCTIONS if name not in FAST]


@pytest.fixture
def in_few_epochs(monkeypatch):
    """Train for two epochs at scale ``smoke``; the slow suite trains ``FAST`` as users do."""
    for name in OTHERS if support.EVERY_CASE else FAST:
        table = REPRODUCTIONS[name]
        (setting,) = table.scales["smoke"]
        network = {**setting.set.network, "epochs": 2}
        few = setting.set.model_copy(update={"network": network, "head": {"epochs": 2}})
        scales = {"smoke": (setting.model_copy(update={"set": few}),)}
        monkeypatch.setitem(
            REPRODUCTIONS._records, name, table.model_copy(update={"scales": scales})
        )


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("in_few_epochs")
@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_table_is_made_in_seconds_and_nothing_is_done_twice(name, tmp_path_factory):
    # One folder for all tables of this process: they share networks, banks and heads.
    out = tmp_path_factory.getbasetemp() / "reproduced"
    words = ("reproduce", name, "--scale", "smoke", "--seeds", "1", "--out", out)
    done = here(*words)
    assert done.returncode == 0, done.stderr
    folder = out / REPRODUCTIONS[name].folder
    lock = json.loads((folder / LOCK).read_text())
    assert (lock["table"], lock["scale"]) == (name, "smoke")
    assert lock["command"].startswith(f"tune-calib reproduce {name}")
    assert set(lock["trials"]) == {path.name for path in folder.iterdir() if path.is_dir()}
    before = {own: rows_of(folder / own) for own in lock["trials"]}
    assert all(before.values())
    for run, entry in lock["runs"].items():
        if REPRODUCTIONS[name].entries[entry].logits:
            kept = read_table(folder / run, "logits")["spec_hash"].unique().to_pylist()
            assert set(kept) == set(read_table(folder / run, "trials")["spec_hash"].to_pylist())
    for run in lock["trials"]:
        assert read_table(folder / run, "intervals")["draws"].null_count < len(
            read_table(folder / run, "intervals")
        )
    # At scale ``smoke``, no set of fedlas/table3 is one that its claims are about.
    is_judged = bool(REPRODUCTIONS[name].claims) and name != "fedlas/table3"
    claims = set() if is_judged else {"claims.md", "claims.tex", "claims.csv"}
    assert {path.name for path in folder.iterdir()} >= FILES - claims
    assert f"\n## {name}\n" in (out / TABLES_PAGE).read_text()
    again = here(*words)
    assert again.returncode == 0, again.stderr
    assert before == {own: rows_of(folder / own) for own in lock["trials"]}


def rows_of(out):
    return sorted(map(repr, read_table(out, "trials").to_pylist()))


@pytest.mark.parametrize(
    ("sets", "is_same"), [(("svhn", "cifar100"), True), (("noise", "cifar100"), False)]
)
def test_a_mean_over_foreign_sets_differs_from_the_print_where_they_are_the_same(
    sets, is_same, tmp_path
):
    fake_results.write(tmp_path)
    fake_results.add_shifts(tmp_path, [f"ood/{name}" for name in sets])
    sweep = fake_results.with_manifest(load(tmp_path), dataset="cifar10")
    table = REPRODUCTIONS["maccal/table2"]
    run = table.entries["methods"].model_copy(update={"printed": {"vanilla": "Vanilla"}})
    table = table.model_copy(update={"entries": {"methods": run}})
    rows = compare_with_print(table, "methods", sweep)
    own = rows[(rows["row"] == "Vanilla") & (rows["metric"] == "auroc")].iloc[0]
    assert own["paper"] == pytest.approx(0.8807)
    assert (own["difference"] == pytest.approx(own["mean"] - 0.8807)) == is_same
    assert pd.isna(own["difference"]) == (not is_same)


def test_a_claim_is_about_a_shift_set_that_was_evaluated(tmp_path):
    """A data set is not foreign to itself, and noise and published fog were not evaluated."""
    evaluated = ["generated/fog/5/ece", "ood/svhn/auroc"]
    others = ("corrupt/fog/5/ece", "ood/digits/auroc", "ood/noise/auroc")
    metrics = (*others, *evaluated)
    claims = tuple(Claim("+ two", ("vanilla",), metric, text=metric) for metric in metrics)
    fake_results.write(tmp_path / "a")
    fake_results.add_shifts(tmp_path / "a", ["generated/fog"])
    fake_results.add_shifts(tmp_path / "a", ["ood/svhn"])
    table = TABLE.model_copy(update={"claims": claims, "metrics": metrics, "published": None})
    write_reproduction(table, tmp_path, {"a": "ladder"}, "tune-calib reproduce x")
    assert list(pd.read_csv(tmp_path / "claims.csv")["claim"]) == evaluated
    assert set(pd.read_csv(tmp_path / "table.csv")["split"]) == {"ood/svhn", "generated/fog/5"}


def test_pages_name_rungs_that_are_equal_in_every_trial(tmp_path):
    fake_results.write(tmp_path)
    name = "Equal in every trial: + one = + two, so 3 of 4 rungs differ."
    for is_equal in (False, True):
        if is_equal:
            for path in (tmp_path / "trials").glob("1-*.parquet"):
                row = read_table(tmp_path, "trials").to_pylist()
                (own,) = (r for r in row if r["spec_hash"] == f"2-{path.stem[2:]}")
                cells = {key: own[key] for key in own if key.startswith("test/")}
                fake_results.set_cells(path, cells)
        sweep = load(tmp_path)
        page = describe_tables([Made(TABLE, [("ladder", sweep)], "x")], lambda *_: None)
        assert (name in page) == (name in notes(sweep)) == is_equal
    # A seed that differs makes rungs differ.
    fake_results.set_cells(path, {"test/nll": 0.4001})
    assert name not in notes(load(tmp_path))


@pytest.mark.parametrize("metric", ["ood/mean/auroc", "ood/mean/fpr95"])
def test_printed_ranks_have_the_direction_of_their_metric(metric):
    # MaC-Cal is second on CIFAR-10 and first on CIFAR-100, and in all cases last from below.
    message = "-1.50 to -0.50; 2 of 2 printed comparisons support it"
    table = REPRODUCTIONS["maccal/table2"]
    claim = Claim("mac_cal", metric=metric, kind="rank", number=2.5, text="it is in the best two")
    rung = RungRecord(index=0, label="mac_cal", ingredient="", published=None, kind="variant")
    assert describe_print(table, "methods", [rung], claim) == message
