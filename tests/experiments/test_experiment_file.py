"""Experiment files: what they mean, what a mistake in one says, and what a dry run promises."""

import json
import random
import re

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from tests import support
from tests.docs.test_pages import blocks, page
from tests.support import sample
from tune_calib.cli import app
from tune_calib.errors import UserError, spell_settings
from tune_calib.experiments.entries import plan_entries
from tune_calib.experiments.file import read_experiment_file
from tune_calib.progress import ProgressEvent, listening
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.experiment import ExperimentFile
from tune_calib.spec.ladder import LADDERS
from tune_calib.tuning.describe import find_needs
from tune_calib.tuning.plan import describe_file

WHOLE = """
out: OUT
datasets: [digits]
backbones: [small_cnn, resnet8]
seeds: 2
set:
  network: {epochs: 1, augment: none}
  head: {epochs: 1, gamma: 0.8}
resources: {gpus: 1/2}
entries:
  losses:
    methods:
      - ce
      - ls+mac_cal+temperature
      - {method: fl, set: {network: {gamma: 1}}}
  steps:
    ladder: mac_cal
    controls: true
    backbones: [small_cnn]
    seeds: {networks: 1, heads: 5}
    resources: {gpus: 0}
  tuned:
    methods: [ls, {method: mac_cal, set: {head: {q0: 0.5}}}]
    search: {trials: 40, sampler: random, metric: [ece, nll], guard: 0.02, seeds: 2}
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "experiment.yaml"
        path.write_text(text.replace("OUT", str(tmp_path / "out")))
        return read_experiment_file(path)

    return read


@pytest.fixture
def file(read):
    return read(WHOLE)


@pytest.fixture
def works(file):
    return {work.name: work for work in plan_entries(file)}


def test_every_entry_stands_on_every_data_set_and_backbone(works):
    assert list(works) == [
        "losses-digits-small_cnn",
        "losses-digits-resnet8",
        "steps-digits-small_cnn",
        "tuned-ls-digits-small_cnn",
        "tuned-mac_cal-digits-small_cnn",
        "tuned-ls-digits-resnet8",
        "tuned-mac_cal-digits-resnet8",
    ]


def test_a_setting_of_the_file_reaches_whoever_knows_it_and_an_entry_stands_above(works):
    assert works["losses-digits-small_cnn"].run.resolved.overrides["head"] == {
        "epochs": 1,
        "gamma": 0.8,
    }
    assert works["tuned-ls-digits-small_cnn"].run.resolved.overrides["head"] == {"epochs": 1}
    tuned = works["tuned-mac_cal-digits-resnet8"].run.resolved.overrides
    assert tuned["head"] == {"epochs": 1, "gamma": 0.8, "q0": 0.5}
    assert tuned["network"] == {"epochs": 1, "augment": "none", "backbone": "resnet8"}


def test_values_of_a_method_are_its_own_and_stand_in_its_label(works):
    rungs = works["losses-digits-small_cnn"].run.ladder.rungs
    assert [rung.label for rung in rungs] == ["ce", "ls+mac_cal+temperature", "fl gamma=1"]
    assert rungs[2].slots == {"network": {"method": "fl", "gamma": 1}}


def test_an_entry_plans_the_same_run_as_its_command(works):
    steps = works["steps-digits-small_cnn"]
    assert steps.run.ladder is LADDERS["mac_cal"]
    seeds = steps.run.resolved.seeds
    assert (len(seeds.network), len(seeds.head), seeds.is_paired) == (1, 5, False)
    question = works["tuned-ls-digits-small_cnn"].run.definition
    assert question.objective.metrics == ("ece", "nll")
    assert (question.sampler, question.objective.guard) == ("random", 0.02)
    assert question.resolved.seeds.pairs() == [(0, 0), (1, 1)]
    assert question.resolved.recipe.settings == DATASETS["digits"].quick.settings


COUNTS = {"4": 4, "{both: 3}": 3, "{networks: 2, heads: 3}": 6, "{heads: 5}": 5}
KINDS = {
    "methods": "methods: [ls]",
    "ladder": "ladder: mac_cal",
    "search of heads": "methods: [mac_cal]",
    "search of networks": "methods: [ls]",
    "search of temperature": "methods: [temperature]",
}


OWN = "{networks: 7}"  # only a search has seeds of its own
PLACES = [(kind, own) for kind in KINDS for own in ((None, OWN) if "search" in kind else (None,))]


@pytest.mark.parametrize(("kind", "own"), PLACES)
@pytest.mark.parametrize("top", sample([None, *COUNTS], 3))
@pytest.mark.parametrize("entry", sample([None, *COUNTS], 3))
def test_seeds_count_wherever_they_stand_the_nearest_above_the_others(read, kind, top, entry, own):
    is_search = kind.startswith("search")
    lines = [KINDS[kind]]
    lines += [f"seeds: {entry}"] if entry else []
    inner = ["trials: 9"] + ([f"seeds: {own}"] if own else [])
    lines += ["search: {" + ", ".join(inner) + "}"] if is_search else []
    text = (f"seeds: {top}\n" if top else "") + "entries: {a: {" + ", ".join(lines) + "}}"
    (work,) = plan_entries(read(text))
    nearest = own or entry or top
    assert len(work.run.resolved.seeds.pairs()) == (7 if own else COUNTS.get(nearest, 1))
    assert work.run.resolved.seeds.is_paired == (nearest is None or nearest in ("4", "{both: 3}"))
    if is_search:
        assert work.run.definition.candidates.resolved == work.run.resolved


def test_extra_evaluations_are_those_of_the_entry_or_else_of_the_file(read):
    text = """
    shift: [noise, "generated:fog"]
    bootstrap: 200
    entries:
      whole: {methods: [ls]}
      own: {methods: [ls], shift: corruptions}
      none: {methods: [ls], shift: []}
      tuned: {methods: [ls], search: {trials: 3}}
    """
    jobs = {job.entry: job.run for job in plan_entries(read(text))}
    assert not hasattr(jobs.pop("tuned"), "options")
    options = {entry: job.options for entry, job in jobs.items()}
    assert {entry: (ladder.shift, ladder.bootstrap) for entry, ladder in options.items()} == {
        "whole": (("noise", "generated:fog"), 200),
        "own": (("corruptions",), 200),
        "none": ((), 200),
    }


PATHS = """
out: $WORK/runs
store: ${WORK}/store
data_root: $WORK
study_storage: postgresql://me:pass$OTHER@host/x
dataset_title: costs in $OTHER
entries: {a: {methods: [ls], set: {network: {weights: $WORK/w.pt}}}}
"""


def test_variables_in_paths_are_expanded_as_a_shell_does(read, tmp_path, monkeypatch):
    monkeypatch.setenv("WORK", str(tmp_path / "scratch"))
    monkeypatch.delenv("OTHER", raising=False)
    file = read(f"datasets: [imagefolder]{PATHS}")
    assert file.out == tmp_path / "scratch" / "runs"
    assert file.store == tmp_path / "scratch" / "store"
    assert file.content.data_root == tmp_path / "scratch"
    assert file.content.entries["a"].set.network["weights"] == str(tmp_path / "scratch/w.pt")
    assert file.content.study_storage == "postgresql://me:pass$OTHER@host/x"
    assert file.content.dataset_title == "costs in $OTHER"
    told = "experiment.yaml line 2: plugins.0: .*variable OTHER is not set"
    with pytest.raises(UserError, match=told):
        read("out: $WORK/runs\nplugins: [$OTHER/own.py]\nentries: {a: {methods: [ls]}}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("entriess: {}", "line 1: entriess: unknown key 'entriess'; did you mean 'entries'?"),
        ("entries:\n  a:\n    ladder: mac_call", "line 3: entries.a.ladder: unknown ladder"),
        ("entries: {a: {methods: [ls+fl]}}", "two network methods"),
        ("entries: {a: {methods: [ls], all: head}}", "exactly one of methods, ladder and all"),
        ("entries: {a: {methods: [ls], seeds: 0}}", "must be at least 1, got 0"),
        ("entries: {a: {methods: [ls], search: {heads: 3}}}", "ls trains no heads"),
        ("entries: {a: {methods: [ls]}}\nset:\n  network:\n    epochs: 0", "line 4: set.network"),
        ("entries: {a: {methods: [ls], set: {head: {q0: 1}}}}", "no rung has a setting head.q0"),
        ("entries: {a: {methods: [ls], datasets: [digits, digits]}}", "two runs would have"),
        ("a: 1\na: 2", "line 2: not YAML: 'a' appears twice"),
        ("out: x\nseeds: 010", "line 2: versions of YAML read 010 differently"),
        ("seeds: true", "line 1: seeds: must be a number, got True"),
        (
            "backbones: [small_cnn]\nset: {network: {weights: w, epochs: 0}}\n"
            "entries: {a: {methods: [ce], seeds: {networks: 2}}}",
            "line 3: entries.a: there is only one frozen network",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_file_line_and_key(read, tmp_path, text, told):
    with pytest.raises(UserError) as error:
        plan_entries(read(text))
    message = spell_settings(error.value)
    assert told in message
    assert message.startswith(str(tmp_path / "experiment.yaml"))
    assert "\n" not in message
    assert not (tmp_path / "out").exists()


def mutated(text: str, chance: random.Random) -> str:
    """An experiment file with a letter, a word or a line changed."""
    where = chance.randrange(len(text))
    kind = chance.randrange(5)
    if kind == 0:
        return text[:where] + chance.choice("abz09:{}[]-# \n\t\"'&*!%|>\0é") + text[where + 1 :]
    if kind == 1:
        return text[:where] + text[where + chance.randrange(1, 9) :]
    lines = text.splitlines()
    if kind == 2:
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))
        return "\n".join(lines)
    if kind == 3:
        del lines[chance.randrange(len(lines))]
        return "\n".join(lines)
    words = re.findall(r"[\w.]+", text)
    value = chance.choice(["-1", "1e99", ".nan", "null", "[]", "{}", "''", "true", "x" * 99])
    return text.replace(chance.choice(words), value, 1)


@pytest.mark.sampled
def test_a_mutated_sweep_file_is_read_or_refused_in_one_line(read):
    chance, refused = random.Random(0), []
    rounds = 300 if support.EVERY_CASE else 100
    for _ in range(rounds):
        try:
            plan_entries(read(mutated(WHOLE, chance)))
        except UserError as error:
            refused.append(str(error))
    assert len(refused) > rounds / 3
    assert not [message for message in refused if "\n" in message]


def test_the_schema_is_json_that_knows_keys_and_names():
    schema = json.loads(CliRunner().invoke(app, ["run", "--schema"]).stdout)
    search = schema["$defs"]["SearchOptions"]["properties"]
    assert search["trials"]["description"] == "number of suggestions to try"
    entry = schema["$defs"]["Entry"]["properties"]
    assert "digits" in entry["datasets"]["items"]["enum"]
    assert "mac_cal" in entry["ladder"]["anyOf"][0]["enum"]
    keys = {field.alias or name for name, field in ExperimentFile.model_fields.items()}
    assert TypeAdapter(ExperimentFile).json_schema()["properties"].keys() == keys


def test_the_sample_shown_is_a_sweep_file_and_prints_that_plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = blocks(page("experiment-files"), "yaml")
    sample = next(text for text in samples if text.startswith("# yaml-language-server: $schema="))
    (tmp_path / "experiments.yaml").write_text(sample)
    result = CliRunner().invoke(app, ["run", "experiments.yaml", "--dry-run"])
    assert result.exception is None
    assert {path.name for path in tmp_path.iterdir()} == {"experiments.yaml"}
    mark = "<!-- tune-calib run experiments.yaml --dry-run -->"
    section = page("experiment-files").split(mark)[1]
    printed = section.split("<!-- end -->")[0].strip().strip("`").strip()
    lines = []
    for text in (result.stdout.strip(), printed):
        lines.append([line for line in text.splitlines() if "CPU core" not in line])
    assert lines[0] == lines[1]


def test_a_plan_counts_networks_and_heads(works, file):
    needs = {name: find_needs(work.run, work.stages[0].work) for name, work in works.items()}
    losses = needs["losses-digits-small_cnn"]
    # ce, ls and fl under two seeds; the pipeline adds a head on each ls network.
    assert (losses.planned, len(losses.networks), losses.heads) == (6, 6, 2)
    steps = needs["steps-digits-small_cnn"]
    assert (steps.planned, len(steps.networks), steps.heads) == (36, 1, 35)
    networks = needs["tuned-ls-digits-small_cnn"]
    assert (networks.planned, len(networks.networks), len(networks.searched)) == (40, 2, 80)
    heads = needs["tuned-mac_cal-digits-small_cnn"]
    assert (len(heads.networks), heads.heads, heads.searched) == (2, 80, [])


def test_hours_without_a_measurement_are_unknown(read):
    file = read("out: OUT\nentries: {a: {methods: [ls], resources: {gpus: 1/4}}}")
    heard: list[ProgressEvent] = []
    with listening(heard.append):
        plan = describe_file("file", plan_entries(file), file.out)
    counted = [
        (event.description, event.completed, event.total) for event in heard if event.total == 1
    ]
    doings = ["reading the files of entries", "estimating the time of entries"]
    assert counted == [(doing, at, 1) for doing in doings for at in (0, 1)]
    assert "4 trials on each GPU" in plan
    assert "10 classes; train 500, select 250, calib 250 images" in plan
    assert "hours unknown for networks, which were not measured" in plan


def test_all_of_a_kind_are_an_entry(tmp_path):
    path = tmp_path / "all.yaml"
    path.write_text("entries: {a: {all: posthoc, set: {posthoc: {bins: 5}}}}")
    (work,) = plan_entries(read_experiment_file(path))
    labels = [trial.label for trial in work.run.planned_trials]
    assert labels[0] == "vanilla"
    assert work.run.ladder.title == "Every post-hoc method side by side"
    assert "beta" not in labels
    posthoc = {trial.label: trial.spec.posthoc for trial in work.run.planned_trials}
    assert posthoc["histogram"].params.bins == 5
