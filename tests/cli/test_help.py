"""What a person is told of commands: examples, groups, defaults, names behind the Tab key."""

import re
import shlex
from pathlib import Path

import pytest

import tune_calib
from analysis.published import describe_published
from docs.generate.commands import commands
from tests.support import here, sample
from tune_calib.spec.ladder import LADDERS

COMMANDS = {name: one for name, one in commands().items() if not one.hidden}
EXAMPLES = [(name, line) for name, command in COMMANDS.items() for line in command.examples]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_a_help_text(name):
    command = COMMANDS[name]
    assert command.examples
    assert command.help
    assert "Examples" not in command.help
    assert command.rich_help_panel


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_an_example_is_a_command_that_the_program_knows(name, line):
    words = shlex.split(line)
    words = words[: words.index(">")] if ">" in words else words
    start = ["tune-calib", *name.split()]
    assert words[: len(start)] == start
    context = COMMANDS[name].make_context(name, words[len(start) :])
    assert context.params


def test_a_template_of_a_cluster_adds_only_options_that_every_command_of_trials_has():
    script = (Path(tune_calib.__file__).parent / "cluster" / "slurm.sh").read_text()
    (added,) = re.findall(r'^tune-calib "\$\{words\[@\]\}" (.*) &$', script, re.M)
    for name, line in EXAMPLES:
        if COMMANDS[name].rich_help_panel == "Run" and "--address" not in line:
            words = [*shlex.split(line)[2:], *shlex.split(added)]
            assert COMMANDS[name].make_context(name, words).params["address"] == "$ip:$port", line


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", ["80", "120"])
def test_help_fits_the_terminal_and_ends_in_the_examples(name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    output = here(*name.split(), "-h").stdout
    assert f"Usage: tune-calib {name}" in output
    assert max(map(len, output.splitlines())) <= int(width)
    assert f"$ {COMMANDS[name].examples[0]}"[: int(width) - 4] in output.partition("Examples:")[2]
    assert "[," not in output  # brackets that were taken for a style


def test_defaults_are_shown(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    output = here("search", "--help").stdout
    for option, default in {
        "--seeds": "1", "--metric": "ece", "--trials": "64", "--guard": "0.01",
        "--recipe": "quick", "--store": "OUT/store", "--at-once": "all cores",
    }.items():  # fmt: skip
        (line,) = [line for line in output.splitlines() if line.startswith(f"  {option} ")]
        assert f"[default: ({default})]" in line or f"[default: {default}]" in line


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("ablate mac", [name for name in LADDERS if name.startswith("mac")]),
        ("compare ls+mac", ["ls+mac_cal"]),
        ("search tempera", ["temperature"]),
        ("ablate mac_cal --dataset cifar", ["cifar10", "cifar100"]),
        ("search ls --metric nl", ["nll", "nll_refinement"]),
        ("report x --published maccal/table", [t for t in describe_published() if "maccal" in t]),
        ("list ladder-", ["ladder-figures"]),
        ("abl", ["ablate"]),
    ],
)
def test_a_shell_completes_names(words, known, monkeypatch):
    words = ["tune-calib", *words.split()]
    monkeypatch.setenv("_TUNE_CALIB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert here().stdout.split() == known


@pytest.mark.parametrize("what", ["methods", "recipes", "spaces", "published", "metrics"])
@pytest.mark.parametrize("width", sample(["80", "90"], 1))
def test_lists_fit_the_terminal(what, width, monkeypatch):
    whole = here("list", what).stdout
    assert here("list", what, "--wide").stdout == whole
    monkeypatch.setenv("COLUMNS", width)
    output = here("list", what).stdout
    assert max(map(len, output.splitlines())) <= int(width) < max(map(len, whole.splitlines()))
    assert here("list", what, "--wide").stdout == whole
