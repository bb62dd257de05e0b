"""Every table of a paper that is registered: what it says holds of what it runs."""

from pathlib import Path

import pytest

from analysis.figure import LADDER_FIGURES
from analysis.published import published
from analysis.reproduction.quantities import QUANTITIES
from analysis.tidy import parted
from tests.support import sample
from tune_calib.errors import UserError
from tune_calib.experiments.entries import build_entries, plan_entries
from tune_calib.experiments.reproduced import TableRequest, build_file, find_runs
from tune_calib.spec.experiment import SeedCounts
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import REPRODUCTIONS, ReproduceRequest, read_reproduction

EXAMPLE = Path(__file__).parents[3] / "docs/examples/smoothing_table2.yaml"
AT = [(name, scale) for name in REPRODUCTIONS for scale in REPRODUCTIONS[name].scales]


def table_request(name, scale, tmp_path, **how):
    gpu_model = how.pop("gpu_model", None)
    request = ReproduceRequest(scale=scale, out=str(tmp_path), **how)
    return TableRequest(REPRODUCTIONS[name], request, gpu_model)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rung: ls", "rungs: ls", "line 31: claims.0: rung is missing"),
        ("    than: [ce]", "    run: gone\n    than: [ce]", "'gone', which is not an entry"),
        ("recipe: focal", "recipe: focals", "line 26: scales.paper.0.recipe: unknown recipe"),
        ("epochs: 2", "epohcs: 2", "line 17: entries.methods.set.network.epohcs: "),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_names_file_and_line(old, new, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(EXAMPLE.read_text().replace(old, new, 1))
    with pytest.raises(UserError) as error:
        build_entries(smoke_of(path))
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def smoke_of(path, scale="smoke"):
    request = ReproduceRequest(scale=scale, out=str(path.parent))
    return build_file(TableRequest(read_reproduction(path), request))


@pytest.mark.parametrize(("scale", "seeds", "draws"), [("smoke", 1, 100), ("cpu", 3, 1000)])
def test_keys_of_an_entry_stand_above_those_of_the_scale_and_of_the_file(
    scale, seeds, draws, tmp_path
):
    path = tmp_path / "mine.yaml"
    own = "entries:\n  own: {all: posthoc, bootstrap: 300, set: {network: {lr: 0.5}}}\n"
    path.write_text(EXAMPLE.read_text().replace("entries:\n", own, 1))
    works = {work.position[1]: work for work in build_entries(smoke_of(path, scale))}
    looks = {name: work.run.options.bootstrap for name, work in works.items()}
    assert looks == {"own": 300, "methods": draws}
    assert {len(work.run.resolved.seeds.pairs()) for work in works.values()} == {seeds}
    networks = {name: work.run.resolved.overrides["network"] for name, work in works.items()}
    assert networks["own"] == {**networks["methods"], "lr": 0.5}


@pytest.mark.parametrize(
    ("seeds", "asked", "heads"), [("5", None, 5), ("{networks: 2, heads: 4}", None, 4), ("5", 2, 2)]
)
def test_seeds_on_frozen_networks_are_head_seeds(seeds, asked, heads, tmp_path):
    path = tmp_path / "mine.yaml"
    given = f"      weights: {{resnet20_he: x.safetensors}}\n      seeds: {seeds}"
    path.write_text(EXAMPLE.read_text().replace("      seeds: 1", given, 1))
    request = ReproduceRequest(scale="smoke", out=str(tmp_path), seeds=asked, weights=tmp_path)
    ask = TableRequest(read_reproduction(path), request)
    (entry,) = build_file(ask).content.entries.values()
    assert entry.seeds == SeedCounts(networks=1, heads=heads)


@pytest.mark.parametrize("name", list(REPRODUCTIONS))
def test_a_table_claims_something_of_rungs_that_it_runs(name):
    table = REPRODUCTIONS[name]
    assert table.claims or table.figures
    assert set(table.figures) <= set(LADDER_FIGURES)
    labels = {
        name: {rung.label for rung in run.build_ladder().rungs}
        for name, run in table.entries.items()
    }
    for claim in table.claims:
        for name in [claim.run] if claim.run else labels:
            for one in claim.comparisons:
                assert {one.rung, *one.than, *(one.less or ())} <= labels[name]
        for one in claim.comparisons:
            assert one.rung not in one.than
            metric, _ = parted(one.metric)
            assert metric in METRICS or metric in QUANTITIES
            has_best = metric in METRICS and METRICS[metric].direction
            assert has_best or one.kind in ("sign", "close", "trend")
            assert bool(one.least) == (one.kind in ("size", "close", "ratio"))
            assert not (one.than and one.number)
    for metric in table.metrics:
        assert parted(metric)[0] in METRICS or metric in QUANTITIES
    for name, run in table.entries.items():
        assert set(run.printed) <= labels[name]


@pytest.mark.parametrize("name", [n for n in REPRODUCTIONS if REPRODUCTIONS[n].published])
def test_every_row_and_metric_that_a_table_names_is_printed(name):
    table = REPRODUCTIONS[name]
    rows = published(table.published)
    named = {row for run in table.entries.values() for row in run.printed.values()}
    assert named <= set(rows["method"])
    printed = {
        QUANTITIES[metric].printed if metric in QUANTITIES else parted(metric)[0]
        for metric in table.metrics
    }
    assert set(rows["metric"]) & printed


@pytest.mark.parametrize(("name", "scale"), sample(AT, 16))
@pytest.mark.parametrize("seeds", sample([None, 2], 1))
def test_a_table_expands_to_works_of_one_store(name, scale, seeds, tmp_path):
    # For a GPU by name no weights need be here that networks start from.
    ask = table_request(name, scale, tmp_path, seeds=seeds, gpu_model="A100-80GB")
    file = build_file(ask)
    works = plan_entries(file, needs_data=False, is_dry=True)
    runs = find_runs(ask)
    assert {runs[work.position[1]] for work in works} == set(ask.table.entries)
    assert file.out == tmp_path / name.replace("/", "-")
    assert file.store == tmp_path / "store"
    for work in works:
        assert work.run.options.bootstrap
        network_seeds = {pair[0] for pair in work.run.resolved.seeds.pairs()}
        assert len(network_seeds) == seeds or seeds is None
        assert work.run.planned_trials


@pytest.mark.parametrize(("name", "scale"), sample(AT, 12))
def test_a_method_and_what_is_built_on_it_have_one_weight_of_the_penalty(name, scale, tmp_path):
    file = build_file(table_request(name, scale, tmp_path, gpu_model="A100-80GB"))
    for work in plan_entries(file, needs_data=False, is_dry=True):
        weights = {}
        for network in (trial.spec.network for trial in work.run.planned_trials):
            if network.method in ("mbls", "fedlas_mbls"):
                weights.setdefault(network.method, set()).add(network.params.alpha)
        if len(weights) == 2:
            assert weights["mbls"] == weights["fedlas_mbls"]


@pytest.mark.parametrize(("name", "scale"), AT)
def test_frozen_networks_need_a_folder_and_are_not_trained(name, scale, tmp_path):
    table = REPRODUCTIONS[name]
    files = {file for own in table.scales[scale] for file in own.weights.values()}
    without, ask = (
        table_request(name, scale, tmp_path),
        table_request(name, scale, tmp_path, weights=tmp_path),
    )
    assert set(without.left_out) == files
    given = [e for name, e in build_file(ask).content.entries.items() if "-given-" in name]
    assert all("weights" in entry.set.network for entry in given)
    backbones = [(name,) for own in table.scales[scale] for name in own.weights]
    assert [entry.backbones for entry in given] == backbones
    assert all(entry.set.network["epochs"] == 0 for entry in given)


def test_a_command_chooses_data_sets_gpus_and_settings(tmp_path):
    settings = {"network.precision": "bf16", "network.epochs": 3}
    how = {"dataset": ("cifar10",), "gpus": 0.5, "set": settings}
    request = table_request("fedlas/table3", "day", tmp_path, **how)
    (entry,) = build_file(request).content.entries.values()
    # The same name, and therefore folder, as in a run of all data sets.
    all_entries = build_file(table_request("fedlas/table3", "day", tmp_path)).content.entries
    assert find_runs(request).keys() == {"methods-1"} < all_entries.keys()
    assert (entry.datasets, entry.resources.gpus) == (("cifar10",), 0.5)
    preset = all_entries["methods-1"].set
    assert entry.set.network == {**preset.network, "precision": "bf16", "epochs": 3}
