"""What surrounds every command: paths, streams, empty and doubled options, signals."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from docs.generate.commands import commands
from tests import drawing, fake_results
from tests.support import command_line, sample
from tune_calib.cli import main
from tune_calib.experiments.entries import Ended, plan_entries, run_entries
from tune_calib.experiments.file import read_experiment_file
from tune_calib.tuning.context import Context

COMMANDS = commands()
OPTIONS = [
    (name, option.opts[0])
    for name, command in COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option" and not option.is_flag
]


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path / "sweep")
    return tmp_path / "sweep"


@pytest.mark.parametrize("command", [["ablate", "mac_cal"], ["search", "fl"]])
@pytest.mark.parametrize("place", ["FILE", "x" * 300])
@pytest.mark.parametrize("option", ["--out", "--store"])
def test_a_path_that_the_system_refuses_is_one_line(command, place, option, tmp_path, refusal):
    (tmp_path / "FILE").touch()
    options = ["--out", tmp_path / "out"] if option == "--store" else []
    assert place[:9] in refusal(*command, *options, option, tmp_path / place)


@pytest.mark.parametrize("name", sample(["figures", "tables", "report.html"], 1))
def test_an_obstacle_at_the_path_of_a_report_is_one_line(name, out, refusal):
    path = out / name
    path.mkdir() if name == "report.html" else path.touch()
    with drawing.figures("png", names={"tradeoff"}):
        message = refusal("report", out)
    assert str(path) in message
    assert "choose another path" in message


def test_output_on_a_full_disk_is_one_line(out):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command_line("status", out), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"error: cannot write")
    assert ended.stderr.count(b"\n") == 1


def test_a_defect_of_the_program_stays_a_traceback(monkeypatch):
    import tune_calib.spec.describe

    for defect in (KeyError("x"), ValueError("x"), OSError("neither of a path nor of a disk")):

        def broken(*_, defect=defect):
            raise defect

        monkeypatch.setattr(tune_calib.spec.describe, "describe", broken)
        with pytest.raises(type(defect)):
            main(["explain", "mac_cal"])


def test_an_entry_whose_folder_is_a_file_does_not_end_the_others(tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_text(f"out: {tmp_path}/out\nentries: {{a: {{methods: [ce]}}}}")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a-digits").touch()
    file = read_experiment_file(path)
    (ended,) = run_entries(file, plan_entries(file), Context())
    assert isinstance(ended, Ended)
    assert "choose another path" in ended.failures[0]


@pytest.mark.parametrize(("command", "option"), sample(OPTIONS, 6))
def test_an_empty_option_is_refused(command, option, refusal):
    for words in ([option, ""], [option, " "], [f"{option}="]):
        assert f"{option} is empty" in refusal(*command.split(), "x", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "methods", "--json", "--markdown"], "one format"),
        (["compare", "ce+"], "'ce+' has an empty part"),
        (["compare", "+ls"], "'+ls' has an empty part"),
        (["ablate", "mac_cal", "--set", "head.lr=1", "--set", "head.lr=2"], "given twice"),
        (["ablate", "mac_cal", "--epochs", "3", "--set", "network.epochs=3"], "given twice"),
        (["ablate", "mac_cal", "--set", "data.dataset=cifar10"], "given twice"),
        (["ablate", "mac_cal", "--set", "head.lr="], "null means none"),
        (["ablate", "mac_cal", "--set", "network.epochs=true"], "must be a number"),
        (["ablate", "mac_cal", "--set", "network.drop_last=1"], "must be true or false"),
        (["search", "temperature", "--set", "posthoc.fit=nll"], "nothing is left to search"),
        (["search", "vector"], "vector has no settings to search"),
        (["compare"], "give exactly one of METHODS and --all"),
        (["compare", "ls", "--all", "posthoc"], "give exactly one of METHODS and --all"),
        (["compare", "--all", "posthok"], "did you mean 'posthoc'"),
        (["compare", "beta"], "takes 2 classes, and 'digits' has 10"),
        (["compare", "ce", "--dataset-title", "Mine"], "--dataset-title is for your own images"),
    ],
)
def test_contradicting_or_incomplete_options_are_refused(
    words, message, refusal, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert message in refusal(*words)
    assert not list(tmp_path.iterdir())


def test_a_test_of_a_ladder_is_refused_and_its_name_checked(out, refusal):
    assert "unknown --test 'foo'" in refusal("report", out, "--test", "foo")
    assert "--test compares methods; the rungs of a ladder" in refusal("report", out, "--test", "t")


STOPPED = """
import time
from tune_calib.cli.common import stoppable
def work():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        time.sleep(60)  # Ray takes its time to end
with stoppable("THIS COMMAND"):
    work()
"""


@pytest.mark.slow
@pytest.mark.parametrize("signals", sample([1, 2, 3], 1))
def test_repeated_interrupts_still_print_how_to_continue(signals):
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    process.kill()
    assert "continue with: THIS COMMAND" in process.communicate(timeout=60)[1]
