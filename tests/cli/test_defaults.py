"""A user's own defaults: where they count, what stands above them, and what is refused."""

import sys

import pytest
import typer

from docs.generate.commands import commands
from tests import fake_results
from tests.support import here
from tune_calib.cli import app
from tune_calib.cli.defaults import format_typed
from tune_calib.errors import UserError

COMMANDS = commands()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def context_of(*words: str):
    """The context of a command, parsed under the program; nothing is carried out."""
    group = typer.main.get_command(app)
    above = group.make_context("tune-calib", list(words))
    name, command, rest = group.resolve_command(above, list(words))
    if name == "analyze":
        name, command, rest = command.resolve_command(above, rest)
    return command.make_context(name, rest, parent=above)


def values(*words: str) -> dict:
    return context_of(*words).params


def write(folder, text: str, name: str = "tune-calib.toml") -> None:
    (folder / name).write_text(text)


def test_defaults_override_the_program_and_typed_options_override_them(folder):
    write(folder, 'seeds = 3\ndata-root = "/data"\nportable = true\ngpus = "1/2"\n')
    given = values("ablate", "mac_cal", "--seeds", "5")
    assert (given["seeds"], str(given["data_root"]), given["epochs"]) == (5, "/data", None)
    assert (given["portable"], given["gpus"]) == (True, 0.5)
    assert values("compare", "ce")["seeds"] == 3
    assert values("evaluate", "x")["seeds"] == 3


def test_variables_in_paths_of_a_file_are_expanded(folder, monkeypatch):
    monkeypatch.setenv("WORK", "/scratch")
    monkeypatch.delenv("OTHER", raising=False)
    write(folder, 'data-root = "$WORK/data"\nstore = "${WORK}/store"\n')
    given = values("ablate", "mac_cal")
    assert (str(given["data_root"]), given["store"]) == ("/scratch/data", "/scratch/store")
    write(folder, 'store = "$OTHER/store"\n')
    with pytest.raises(UserError, match="variable OTHER is not set"):
        values("ablate", "mac_cal")


def test_defaults_of_a_command_override_general_ones(folder):
    write(folder, 'seeds = 3\nmetric = "nll"\n[search]\nseeds = 2\nmetric = ["ece", "nll"]\n')
    search = values("search", "ls")
    assert (search["seeds"], search["metric"]) == (2, ["ece", "nll"])
    assert values("report", "x")["metric"] == ["nll"]
    assert values("analyze", "ranks", "x")["metric"] == "nll"
    assert values("search", "ls", "--metric", "brier")["metric"] == ["brier"]


def test_defaults_may_stand_in_pyproject(folder):
    write(folder, '[tool.tune-calib]\nseeds = 4\n[tool.other]\nseeds = "x"\n', "pyproject.toml")
    assert values("ablate", "mac_cal")["seeds"] == 4
    assert "from pyproject.toml: --seeds 4" in here("ablate", "foo").stderr
    write(folder, "seeds = 5")
    assert "keep them in one" in here("ablate", "foo").stderr


@pytest.mark.parametrize(
    ("file", "words", "dropped"),
    [
        ("seeds = 3", ["--network-seeds", "2"], "seeds"),
        ("network-seeds = 3", ["--seeds", "2"], "network_seeds"),
        ('dataset = "cifar10"', ["--imported", "mine"], "dataset"),
        ("epochs = 3", ["--weights", "w.safetensors"], "epochs"),
    ],
)
def test_typed_options_override_contradicting_defaults(file, words, dropped, folder):
    without = values("ablate", "mac_cal", *words)[dropped]
    write(folder, file)
    assert values("ablate", "mac_cal")[dropped] != without
    assert values("ablate", "mac_cal", *words)[dropped] == without


def test_top_level_defaults_do_not_apply_to_experiment_files(folder):
    write(folder, 'address = "auto"\nseeds = 3\n')
    assert values("run", "experiment.yaml")["address"] is None
    write(folder, '[run]\naddress = "auto"\n')
    assert values("run", "experiment.yaml")["address"] == "auto"


@pytest.mark.parametrize("name", ["resume", "evaluate"])
def test_top_level_defaults_do_not_replace_the_cluster_of_a_search(name, folder):
    write(folder, 'address = "auto"\naccept-code = true\n')
    assert (values(name, "out")["address"], values(name, "out")["accept_code"]) == (None, True)
    write(folder, f'[{name}]\naddress = "auto"\n')
    assert values(name, "out")["address"] == "auto"


def test_the_resume_command_names_defaults_as_options(folder, monkeypatch, capsys):
    write(folder, 'seeds = 3\nportable = true\nset = ["head.gamma=0.9", "head.lr=1"]\n')
    words = ["ablate", "mac_cal", "--seeds", "5"]
    monkeypatch.setattr(sys, "argv", ["tune-calib", *words])
    context = context_of(*words)
    command = format_typed(context)
    assert (
        capsys.readouterr().err
        == "from tune-calib.toml: --portable --set head.gamma=0.9 --set head.lr=1\n"
    )
    assert command.endswith("--portable --set head.gamma=0.9 --set head.lr=1 mac_cal --seeds 5")
    (folder / "tune-calib.toml").unlink()
    again, before = values(*command.split()[1:]), values(*words)
    assert again != before
    write(folder, 'seeds = 3\nportable = true\nset = ["head.gamma=0.9", "head.lr=1"]\n')
    assert again == values(*words)


PLANTED = """
from dataclasses import replace
from pathlib import Path
from tune_calib.spec.methods import METHODS

Path({canary!r}).touch()
METHODS.register(replace(METHODS["fl"], name="planted"))
"""


def test_every_command_declares_whether_it_trains():
    assert {name for name, command in COMMANDS.items() if not command.callback.trains} == {
        "analyze averages", "analyze benchmark", "analyze diff", "analyze effects",
        "analyze importance", "analyze interaction", "analyze ranks", "analyze sensitivity",
        "analyze significance", "explain", "import", "list", "report", "status",
    }  # fmt: skip


@pytest.mark.parametrize("file", ["tune-calib.toml", "pyproject.toml"])
def test_only_commands_that_train_run_a_plug_in_of_the_file(file, folder):
    canary = folder / "canary"
    (folder / "lab.py").write_text(PLANTED.format(canary=str(canary)))
    head = "[tool.tune-calib]\n" if file == "pyproject.toml" else ""
    write(folder, head + 'plugin = ["lab.py"]', file)
    fake_results.write(folder / "out", seeds=1)
    for words in (["status", "out"], ["list", "methods", "--json"], ["explain", "ls", "--bibtex"]):
        done = here(*words)
        assert done.returncode == 0
        assert (done.stderr, "planted" in done.stdout) == ("", False)
    assert not canary.exists()
    done = here("list", "methods", "--plugin", "lab.py")
    assert ("planted" in done.stdout, done.stderr) == (True, "")
    assert canary.exists()


def test_passwords_are_not_printed(folder):
    write(folder, '[search]\nstudy-storage = "postgresql://me:secret@host/x"\n')
    message = here("search", "foo").stderr
    assert "postgresql://me:***@host/x" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sed = 3", "no option 'sed'; did you mean 'seeds'?"),
        ("[serch]", "no command 'serch'; did you mean 'search'?"),
        ("[search]\ntrails = 2", "search: no option 'trails'; did you mean 'trials'?"),
        ("[ranks]\nseeds = 2", "ranks: no option 'seeds'"),
        ("seeds = true", "seeds must be a string or a number, got True"),
        ("seeds = [1, 2]", "seeds must be a string or a number, got [1, 2]"),
        ("seeds = 2.5", "(from tune-calib.toml: --seeds 2.5)"),
        ("seeds = 'x'", "(from tune-calib.toml: --seeds x)"),
        ("seeds = 2024-01-01", "seeds must be a string or a number"),
        ("portable = 1", "portable must be true or false, got 1"),
        ("portable = 'yes'", "portable must be true or false, got 'yes'"),
        ("store = ' '", "store is empty"),
        ("set = ['head.lr=1', '']", "set is empty"),
        ("gpus = 'x'", "must be 0, 1, 1/k or auto, got x"),
        ("out = 'runs/x'", "--out cannot have a default here"),
        ("[evaluate]\nextend = true", "evaluate: --extend cannot have a default here"),
        ("seeds =", "is not valid TOML"),
        ("search = 3", "no option 'search'"),
        ("data-root = 'a'\ndata_root = 'b'", "data-root appears twice"),
    ],
)
def test_a_wrong_file_is_one_line(text, told, folder, refusal):
    write(folder, text)
    message = refusal("ablate", "mac_cal", "--shift", "nothing")
    assert "tune-calib.toml" in message
    assert told in message


def test_a_wrong_file_of_another_encoding_or_kind_is_one_line(folder, refusal):
    (folder / "tune-calib.toml").write_bytes(b"\xff\xfe")
    assert "is not valid TOML" in refusal("ablate", "mac_cal")
    (folder / "tune-calib.toml").unlink()
    (folder / "tune-calib.toml").mkdir()
    assert "choose another path" in refusal("ablate", "mac_cal")
