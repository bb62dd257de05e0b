"""Every table of a paper that is registered: what it says holds of what it runs."""

import json
import pkgutil

import pytest
import torch

import ablations.papers
from analysis.figure import LADDER_FIGURES
from analysis.published import published
from analysis.reproduction.quantities import QUANTITIES
from analysis.tidy import parted
from tests.support import each, here
from tune_calib.errors import UserError
from tune_calib.experiments.reproduced import Ask, lacking, refuse_lacking, run_of_entry, sweep_file
from tune_calib.experiments.run import planned_works
from tune_calib.paths import place
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import GIVEN, REPRODUCTIONS, SCALES

AT = [(name, scale) for name in REPRODUCTIONS for scale in REPRODUCTIONS[name].scales]


def asked(name, scale, tmp_path, **how):
    return Ask(REPRODUCTIONS[name], scale, place(str(tmp_path)), **how)


def test_every_file_of_papers_registers_its_table():
    files = {m.name for m in pkgutil.iter_modules(ablations.papers.__path__)}
    assert {f for f in files if not f.startswith("_")} == {
        name.replace("/", "_") for name in REPRODUCTIONS
    }


@each("name", list(REPRODUCTIONS))
def test_a_table_claims_something_of_rungs_that_it_runs(name):
    table = REPRODUCTIONS[name]
    assert table.claims or table.figures
    assert set(table.figures) <= set(LADDER_FIGURES)
    labels = {run.name: {rung.label for rung in run.rungs} for run in table.runs}
    assert len(labels) == len(table.runs)
    for claim in table.claims:
        assert {claim.rung, *claim.than} <= labels[claim.run]
        assert claim.rung not in claim.than
        metric, _ = parted(claim.metric)
        assert metric in METRICS or metric in QUANTITIES
        has_best = metric in METRICS and METRICS[metric].direction
        assert has_best or claim.kind in ("sign", "close")
        assert bool(claim.least) == (claim.kind in ("size", "close"))
        assert not (claim.than and claim.number)
    for metric in table.metrics:
        assert parted(metric)[0] in METRICS or metric in QUANTITIES
    for run in table.runs:
        assert sum(map(bool, (run.ladder, run.methods, run.all))) == 1
        assert set(run.printed) <= labels[run.name]


@each("name", [n for n in REPRODUCTIONS if REPRODUCTIONS[n].published])
def test_every_row_and_metric_that_a_table_names_is_printed(name):
    table = REPRODUCTIONS[name]
    rows = published(table.published)
    named = {row for run in table.runs for row in run.printed.values()}
    assert named <= set(rows["method"])
    printed = {
        QUANTITIES[metric].printed if metric in QUANTITIES else parted(metric)[0]
        for metric in table.metrics
    }
    assert set(rows["metric"]) & printed


@each("name", list(REPRODUCTIONS))
def test_a_table_has_the_scale_of_seconds_and_that_of_the_paper(name):
    assert {"smoke", "paper"} <= set(REPRODUCTIONS[name].scales) <= set(SCALES)


@each(("name", "scale"), AT)
@each("seeds", [None, 2])
def test_a_table_expands_to_works_of_one_store(name, scale, seeds, tmp_path):
    # For a GPU by name no weights need be here that networks start from.
    ask = asked(name, scale, tmp_path, seeds=seeds, gpu_model="A100-80GB")
    file = sweep_file(ask)
    works = planned_works(file, needs_data=False, is_dry=True)
    runs = run_of_entry(ask)
    assert {runs[work.position[1]] for work in works} == {run.name for run in ask.table.runs}
    assert file.out == tmp_path / name.replace("/", "-")
    assert file.store == tmp_path / "store"
    for work in works:
        assert work.look.bootstrap
        own = {pair[0] for pair in work.asked.seeds.pairs()}
        assert len(own) == seeds or seeds is None
        assert work.planned()


@each(("name", "scale"), AT)
def test_a_method_and_what_is_built_on_it_have_one_weight_of_the_penalty(name, scale, tmp_path):
    file = sweep_file(asked(name, scale, tmp_path, gpu_model="A100-80GB"))
    for work in planned_works(file, needs_data=False, is_dry=True):
        weights = {}
        for network in (trial.spec.network for trial in work.planned()):
            if network.method in ("mbls", "fedlas_mbls"):
                weights.setdefault(network.method, set()).add(network.params.alpha)
        if len(weights) == 2:
            assert weights["mbls"] == weights["fedlas_mbls"]


@each(("name", "scale"), AT)
def test_given_networks_are_asked_for_by_their_folder_and_not_trained(name, scale, tmp_path):
    table = REPRODUCTIONS[name]
    files = {file for own in table.scales[scale] for file in own.weights.values()}
    without, ask = asked(name, scale, tmp_path), asked(name, scale, tmp_path, weights=tmp_path)
    assert set(without.left_out) == files
    missing = [line for line in lacking(ask) if "weights" in line]
    assert len(missing) == len(files) + sum(own.start is not None for own in table.scales[scale])
    given = [e for name, e in sweep_file(ask).content.entries.items() if "-given-" in name]
    assert all("weights" in entry.set.network for entry in given)
    assert [entry.backbones for entry in given] == [(b,) for b in GIVEN] * bool(files)
    assert all(entry.set.network["epochs"] == 0 for entry in given)


def test_all_that_is_lacking_is_told_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    ask = asked("maccal/table5", "cpu", tmp_path, data_root=tmp_path / "empty", weights=tmp_path)
    with pytest.raises(UserError) as told:
        refuse_lacking([ask])
    for word in ("cifar10", "cifar100", *GIVEN.values(), "maccal/table5"):
        assert word in str(told.value)


def test_a_gpu_is_lacking_unless_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ask = asked("maccal/table5", "paper", tmp_path)
    assert "no GPU" in lacking(ask)
    assert "no GPU" not in lacking(ask, is_dry=True)


@pytest.mark.slow
def test_a_dry_run_without_a_gpu_names_the_option_that_gives_hours(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("cifar10", "cifar100"):
        for part in ("train", "test"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{part}.parquet").touch()
    words = ["maccal/table5", "--scale", "paper", "--data-root", tmp_path, "--out", tmp_path / "o"]
    dry = here("reproduce", *words, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "name it: --gpu-model A100-40GB or" in dry.stdout
    assert not (tmp_path / "o").exists()


def test_the_list_has_every_table_and_its_claims():
    listed = json.loads(here("reproduce", "--list", "--json").stdout)
    assert [table["name"] for table in listed] == list(REPRODUCTIONS)
    for table in listed:
        assert table["claims"] == [claim.text for claim in REPRODUCTIONS[table["name"]].claims]
    assert all(name in here("reproduce", "--list").stdout for name in REPRODUCTIONS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--list"),
        (["maccal/table5", "--list"], "--list"),
        (["maccal/table55"], "did you mean 'maccal/table5'"),
        (["maccal/table5", "--scale", "small"], "--scale"),
        (["maccal/table5", "--json"], "--json"),
        (["maccal/table5", "--seeds", "0"], "--seeds"),
        (["maccal/table5", "--gpu-model", "A100-80GB"], "--gpu-model"),
    ],
)
def test_a_mistake_is_one_line(words, told, refusal):
    assert told in refusal("reproduce", *words)
