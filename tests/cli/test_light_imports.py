"""What a quick command may not import: names, states and refusals need neither torch nor Ray."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests import fake_results
from tests.support import here
from tune_calib.cli.look_up import LISTS

ARCHIVE = Path(__file__).parents[1] / "present_format" / "formats-1.tar.xz"
SLOW = ("torch", "ray", "pandas", "matplotlib", "timm", "sklearn", "statsmodels", "torchvision")
QUICK = {
    "help": ["--help"],
    "help of a command": ["ablate", "--help"],
    **{f"list {what}": ["list", what] for what in LISTS},
    "list one": ["list", "methods", "mac_cal"],
    "cite": ["explain", "ls+mac_cal", "--bibtex"],
    "status of a run": ["status", "RUN"],
    "status of a search": ["status", "made/search"],
    "status of an evaluation": ["status", "made/search/evaluation"],
    "status of an experiment file": ["status", "ALL"],
}
OTHER = ["--dataset", "cifar10", "--backbone", "resnet50"]
REFUSED = {
    "no setting": ["ablate", "mac_cal", "--set", "head.gama=1"],
    "no command": ["nope"],
    "no method to compare": ["compare", "ls+nope"],
    "no method to check": ["check-method", "nope"],
    "no recipe": ["search", "fl", "--recipe", "nope"],
    "nothing to report": ["report", "NOTHING"],
    "nothing to resume": ["resume", "NOTHING"],
    "nothing to rank": ["analyze", "ranks", "NOTHING"],
    "no method in a file": ["run", "wrong.yaml"],
    "no quick setting for a backbone": ["ablate", "mac_cal", *OTHER],
}
SCRIPT = """
import json, sys
slow, path, commands = json.loads(sys.argv[1])
import tune_calib
found = {"import": sorted({"pydantic", "numpy", *slow} & sys.modules.keys())}
from tune_calib.cli import main
before = set()
for name, words in commands.items():
    try:
        main(words)
    except SystemExit as ended:
        loaded = sys.modules.keys() & set(slow)
        found[name] = [ended.code or 0, sorted(loaded - before)]
        before |= loaded
with open(path, "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Exit code and slow modules of each command, in one process."""
    folder = tmp_path_factory.mktemp("start")
    fake_results.write(folder / "RUN")
    fake_results.write(folder / "ALL" / "one")
    (folder / "wrong.yaml").write_text("entries: {a: {methods: [nope]}}")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder / "made", filter="data")
    given = json.dumps([SLOW, str(folder / "found.json"), REFUSED | QUICK])
    subprocess.run(
        [sys.executable, "-c", SCRIPT, given], cwd=folder, check=True, capture_output=True
    )
    return json.loads((folder / "found.json").read_text())


def test_importing_the_package_imports_nothing_slow(outcomes):
    assert outcomes["import"] == []


def test_quick_commands_import_nothing_slow(outcomes):
    assert {name: outcomes[name] for name in QUICK} == {key: [0, []] for key in QUICK}


def test_quick_refusals_import_nothing_slow(outcomes):
    assert {name: outcomes[name] for name in REFUSED} == {key: [2, []] for key in REFUSED}


def test_a_plug_in_is_listed_with_the_index():
    plugin = Path(__file__).parents[2] / "docs" / "examples" / "plugin_head.py"
    before = json.loads(here("list", "methods", "--json").stdout)
    beside = json.loads(here("list", "methods", "--json", "--plugin", plugin).stdout)
    assert len(beside) == len(before) + 1
    assert json.loads(here("list", "methods", "--json").stdout) == before
