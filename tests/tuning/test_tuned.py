"""Comparisons at tuned settings: equal searches first, then one evaluation on test."""

import contextlib
import json
import shlex
import shutil
import time
from pathlib import Path

import pytest

from analysis.load import load
from tests.imports.files import features, head, write
from tests.support import here, rows, sample
from tests.tuning.ray.test_in_process import wrap_steps
from tune_calib.errors import UserError
from tune_calib.results.manifests import SearchOutcome, TunedManifest
from tune_calib.results.tables import read_table
from tune_calib.spec.request import CompareRequest, build_request
from tune_calib.spec.resolve import resolve_ladder
from tune_calib.tuning import plan as driver

METHODS = ["temperature", "vector", "retrain"]
TUNE = ["--tune", 5, "--head-epochs", 3]


def compare(out: Path, *arguments):
    """Compare methods on the outputs of a network, so that none is trained."""
    store = out.parent / "store"
    if not store.exists():
        options = []
        for seed, split in enumerate(("train", "select", "calib", "test")):
            file = write(out.parent / f"{split}.npz", **features(120, seed=seed))
            options += [f"--{split}", file]
        options += ["--head", write(out.parent / "head.npz", **head())]
        assert here("import", "mine", *options, "--store", store).returncode == 0
    return here("compare", *arguments, "--imported", "mine", "--out", out, "--store", store)


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A tuned comparison that ran as a whole."""
    out = tmp_path_factory.mktemp("tuned") / "out"
    done = compare(out, *METHODS, *TUNE)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_each_method_has_the_same_search_and_the_best_settings_on_select(complete):
    out, printed = complete
    manifest = TunedManifest.read(out)
    assert [method.label for method in manifest.methods] == METHODS
    assert [method.suggestions for method in manifest.methods] == [3, 0, 5]
    questions = []
    for method in manifest.methods:
        if not method.folder:
            assert (method.tuned, method.label) == (None, "vector")
            continue
        folder = out / method.folder
        assert not any("test/" in name for name in read_table(folder, "trials").column_names)
        question = json.loads((folder / "search.json").read_bytes())["question"]
        del question["method"]
        questions.append(question)
        values, within = {}, {}
        select = {row["spec_hash"]: row["select/nll"] for row in rows(folder)}
        for suggestion in SearchOutcome.read(folder).suggestions:
            (spec,) = suggestion.specs
            values[suggestion.number] = select[spec]
            if suggestion.is_within:
                within[suggestion.number] = select[spec]
        assert method.chosen == min(within, key=lambda number: (within[number], number))
        assert method.tuned_value == within[method.chosen]
        assert method.published_value == values[0]
        assert method.is_within == (0 in within)
        assert method.cost_s > 0
    # The settings that a search has chosen are within the guard where the published ones are not.
    assert [method.is_within for method in manifest.methods if method.folder] == [True, False]
    assert printed.count("(beyond the guard)") == 1
    assert questions[0] == questions[1]
    assert questions[0]["objective"] == {"metrics": ["nll"], "guard": 0.01}
    assert not {*questions[0]["seeds"]["head"]} & {row["head_seed"] for row in rows(out)}
    assert "Test was read once, with 3 methods and 1 fresh seed." in printed


NARROW = """
from dataclasses import replace

from tune_calib.spec.methods import METHODS
from tune_calib.spec.space import SPACES, log_uniform

METHODS.register(replace(METHODS["retrain"], name="narrow"))
SPACES.register(name="narrow", settings={"head.lr": log_uniform(0.2, 0.3)})
"""


def read_rates(out):
    """Return the learning rate of the heads by the label of their rung."""
    heads = {row["rung_label"]: row["head"] for row in rows(out) if row["head"]}
    return {label: json.loads(head)["lr"] for label, head in heads.items()}


def test_published_settings_outside_the_space_are_evaluated_but_not_suggested(tmp_path):
    plugin, chosen = tmp_path / "narrow.py", []
    plugin.write_text(NARROW)
    for seed in (0, 1):
        out = tmp_path / f"out-{seed}"
        options = ["narrow", "--tune", 2, "--tune-seeds", 2, "--race", "--sampler-seed", seed]
        options += ["--guard", 1, "--head-epochs", 2, "--plugin", plugin]
        plan = compare(out, *options, "--dry-run")
        assert (plan.returncode, plan.stderr) == (0, "")
        done = compare(out, *options)
        assert done.returncode == 0, done.stderr
        (method,) = TunedManifest.read(out).methods
        assert (method.published["head.lr"], method.published_value) == (0.01, None)
        assert read_rates(out) == {"narrow": 0.01, "narrow tuned": method.tuned["head.lr"]}
        chosen.append(method.tuned["head.lr"])
    assert chosen[0] != chosen[1]
    out = tmp_path / "search"
    options = ["--imported", "mine", "--store", tmp_path / "store", "--head-epochs", 2]
    options += ["--trials", 2, "--guard", 1, "--plugin", plugin, "--out", out]
    searched = here("search", "narrow", *options)
    assert searched.returncode == 0, searched.stderr
    evaluated = here("evaluate", out, "--plugin", plugin)
    assert evaluated.returncode == 0, evaluated.stderr
    assert read_rates(out / "evaluation")["defaults"] == 0.01
    # No suggestion has values of the defaults on select, with which test could be compared.
    compared = evaluated.stdout.partition("optimism")[2]
    assert "chosen" in compared
    assert "defaults" not in compared


def test_the_command_of_a_row_repeats_it(complete, tmp_path):
    out, printed = complete
    retrain = TunedManifest.read(out).methods[-1]
    assert retrain.command in printed.replace("\n", "")
    words = shlex.split(retrain.command)[1:]
    done = here(*words, "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    (again,) = rows(tmp_path / "again")
    (first,) = (row for row in rows(out) if row["rung_label"] == "retrain tuned")
    assert again["spec_hash"] == first["spec_hash"]
    assert again["test/nll"] == first["test/nll"]


def test_a_tuned_method_is_evaluated_and_repeated_on_each_split(tmp_path):
    out = tmp_path / "out"
    assert compare(out, "temperature", "--tune", 3, "--split-seeds", 2).returncode == 0
    (method,) = TunedManifest.read(out).methods
    assert here(*shlex.split(method.command)[1:], "--out", tmp_path / "again").returncode == 0
    last = max(row["rung"] for row in rows(out))  # the tuned settings, if they are others
    hashes = {row["spec_hash"] for row in rows(out) if row["rung"] == last}
    assert hashes == {row["spec_hash"] for row in rows(tmp_path / "again")}
    assert len(hashes) == 2


@pytest.mark.parametrize("killed_at", sample(["search-retrain", "out"], 1))
def test_a_killed_comparison_continues_with_equal_rows(killed_at, complete, tmp_path, monkeypatch):
    """The kill comes when the run in a folder has begun, and one of its trials has ended."""
    out, begun = tmp_path / "out", []

    def kill(*arguments):
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def killed(location, *further, **named):
        with opened(location, *further, **named) as executor:
            if location.out.name == killed_at:
                begun.append(location.out)
                executor.run = kill
            yield executor

    opened = driver.open_executor
    with monkeypatch.context() as patched:
        patched.setattr(driver, "open_executor", killed)
        compare(out, *METHODS, *TUNE)
    assert begun
    assert (out / "tuned.json").exists() == (killed_at == "out")
    done = compare(out, *METHODS, *TUNE)
    assert done.returncode == 0, done.stderr
    without = ("out", "sweep", "timestamp", "started")
    values = [[read_values(row) for row in rows(folder, *without)] for folder in (out, complete[0])]
    assert values[0] == values[1]
    assert len(TunedManifest.read(out).reads) == 1


@pytest.mark.slow
def test_hours_cover_all_searches_and_test_is_not_read_without_them(
    complete, tmp_path, monkeypatch
):
    out, ended, now = tmp_path / "out", [0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3600 * ended[0])

    def take_an_hour(step, worker):
        ended[0] += 1
        return step(worker)

    wrap_steps(monkeypatch, take_an_hour)
    # The three fits of the first search and its baseline end, and a batch of the next one.
    stopped = compare(out, *METHODS, *TUNE, "--max-hours", 5.5)
    assert (stopped.returncode, stopped.stdout) == (3, "")
    line = "search-retrain: the time limit of 5.5 h is over: "
    assert line in stopped.stderr
    assert "continue with: tune-calib compare temperature vector retrain" in stopped.stderr
    assert not (out / "tuned.json").exists()
    assert rows(out) == []
    monkeypatch.undo()
    assert compare(out, *METHODS, *TUNE, "--max-hours", 1).returncode == 0
    values = [[read_values(row) for row in rows(folder)] for folder in (out, complete[0])]
    assert values[0] == values[1]


def read_values(row):
    return {name: row[name] for name in row if "/" in name or name in ("rung", "spec_hash")}


def test_a_further_method_or_seed_is_a_further_read_and_keeps_the_rungs(complete, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(complete[0], out)
    shutil.copytree(complete[0].parent / "store", tmp_path / "store")
    labels = load(out).labels
    done = compare(out, *METHODS, "matrix", "--seeds", 2, *TUNE)
    assert done.returncode == 0, done.stderr
    after = load(out).labels
    assert {index: after[index] for index in labels} == labels
    assert len(after) > len(labels)
    reads = TunedManifest.read(out).reads
    assert [(len(read.methods), read.seeds) for read in reads] == [(3, 1), (4, 2)]
    assert "Test was read 2 times: with 3 methods and 1 fresh seed, then 4 methods and 2" in (
        done.stdout
    )
    left = compare(out, "retrain", *TUNE)
    assert left.returncode == 2
    assert "also compares temperature" in left.stderr
    other = compare(out, *METHODS, "matrix", "--tune", 7)
    assert other.returncode == 2
    assert "contains another" in other.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "ece"}, "metric is that of the searches of `tune`"),
        ({"tune": 3, "grid": {"head.gamma": [0.9]}}, "`tune` does not apply"),
        ({"grid": {"head.gama": [0.9]}}, "no method has a setting head.gama"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        resolve_ladder(build_request(CompareRequest, {"methods": ["mac_cal"], **options}))


def test_a_grid_has_a_rung_for_each_cell_with_rounded_labels():
    methods = ["ce", {"method": "mac_cal", "set": {"head": {"q0": 0.4}}}]
    grid = {"head.gamma": [0.7, 0.1 + 0.2], "head.lr": [0.1, 1e-05]}
    request = build_request(CompareRequest, {"methods": methods, "grid": grid})
    ladder, _ = resolve_ladder(request)
    assert [rung.label for rung in ladder.rungs] == [
        "ce",
        "mac_cal q0=0.4 gamma=0.7 lr=0.1",
        "mac_cal q0=0.4 gamma=0.7 lr=1e-05",
        "mac_cal q0=0.4 gamma=0.3 lr=0.1",
        "mac_cal q0=0.4 gamma=0.3 lr=1e-05",
    ]
    assert ladder.rungs[3].slots["head"]["gamma"] == 0.1 + 0.2


def test_a_dry_run_sums_searches_and_comparison(tmp_path):
    done = compare(tmp_path / "out", *METHODS, *TUNE, "--dry-run")
    assert done.returncode == 0, done.stderr
    counts = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if line}
    assert (counts["search-temperature"], counts["search-retrain"], counts["out"]) == (
        "3",
        "5",
        "5",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_searches_may_end_suggestions_early(tmp_path):
    out = tmp_path / "out"
    halved = ["temperature", "retrain", "--tune", 6, "--head-epochs", 9]
    done = compare(out, *halved, "--halving", 3)
    assert done.returncode == 0, done.stderr
    heads = out / "search-retrain"
    for folder, factor in ((heads, 3), (out / "search-temperature", None)):
        question = json.loads((folder / "search.json").read_bytes())["question"]
        assert question.get("halving") == factor
    outcome = SearchOutcome.read(heads)
    stopped = [s for s in outcome.suggestions if s.status == "stopped"]
    assert 2 <= len(stopped) <= 4  # of two brackets of three; the defaults are promoted
    done_hashes = {s.number: (len(s.specs), len(s.shorter)) for s in outcome.suggestions}
    assert {done_hashes[s.number] for s in stopped} == {(1, 0)}
    assert done_hashes[outcome.chosen] == (1, 1)
    refused = compare(out, *halved)
    assert refused.returncode == 2
    assert compare(out, *halved, "--race").returncode == 2
    raced = compare(tmp_path / "raced", *halved, "--race", "--tune-seeds", 2)
    assert raced.returncode == 0, raced.stderr
    question = json.loads((tmp_path / "raced/search-retrain/search.json").read_bytes())["question"]
    assert question["race"]
    assert question["seeds"]["head"] == [1000, 1001]
