"""Plug-ins at work: in one process, on two nodes, in an experiment file, and after a change."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from tests.support import QUICK, cli, command_line, here, rows, sample
from tune_calib.spec import plugins

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
NAMES = ("loss", "head", "metric")
SHORT = ["--epochs", "1", "--head-epochs", "1", *QUICK[4:]]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Path:
    """A comparison with a loss, a head method and a metric of plug-ins."""
    folder = tmp_path_factory.mktemp("lab")
    for name in NAMES:
        shutil.copy(EXAMPLES / f"plugin_{name}.py", folder)
    done = here(*compare(folder))
    assert done.returncode == 0, done.stderr
    return folder


def compare(folder: Path, out: str = "out") -> list[object]:
    options = [word for name in NAMES for word in ("--plugin", folder / f"plugin_{name}.py")]
    return ["compare", "ce", "poly", "cosine", *options, *SHORT, "--out", folder / out]


@pytest.fixture
def copied(lab, tmp_path) -> Path:
    """The folder of the comparison; its plug-ins lie where they did."""
    shutil.copytree(lab / "out", tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def changed(lab):
    """The loss after a change in place."""
    path = lab / "plugin_loss.py"
    text = path.read_text()
    path.write_text(text + "# changed\n")
    yield path
    path.write_text(text)


def test_a_row_names_the_plug_ins_behind_it(lab):
    content = {name: plugins.read(str(lab / f"plugin_{name}.py")).content for name in NAMES}
    row_of = {row["rung_label"]: row for row in rows(lab / "out")}
    assert {label: set(json.loads(row["plugins"])) for label, row in row_of.items()} == {
        "ce": {"plugin_metric"},
        "poly": {"plugin_loss", "plugin_metric"},
        "cosine": {"plugin_head", "plugin_metric"},
    }
    assert json.loads(row_of["poly"]["network"])["plugin"] == content["loss"]
    assert json.loads(row_of["cosine"]["head"])["plugin"] == content["head"]
    for row in row_of.values():
        assert 0 < row["test/ks"] < 1
    manifest = json.loads((lab / "out/sweep.json").read_text())
    assert {plugin["name"]: plugin["content"] for plugin in manifest["plugins"]} == {
        f"plugin_{name}": digest for name, digest in content.items()
    }


def named(folder: Path) -> list[object]:
    """The options that name every plug-in of a folder."""
    return [word for path in sorted(folder.glob("plugin_*.py")) for word in ("--plugin", path)]


@pytest.mark.parametrize("command", sample(["status", "report", "analyze ranks"], 1))
def test_a_folder_is_read_without_its_plug_ins_until_they_are_named(command, lab, copied):
    done = here(*command.split(), copied)
    assert done.returncode == 0, done.stderr
    assert "poly" in done.stdout
    assert "KS" not in done.stdout
    assert "is read without the plug-ins plugin_" in done.stderr
    assert set(done.stderr.split()) >= {str(word) for word in named(lab)}
    assert plugins.in_use() == ()
    more = ["--metric", "ks"] if "ranks" in command else []
    done = here(*command.split(), copied, *named(lab), *more)
    assert (done.returncode, done.stderr) == (0, "")
    if command == "report":
        assert "KS" in done.stdout
        assert "KS error" in (copied / "report.html").read_text()


def test_commands_that_need_a_plug_in_are_refused_until_it_is_named(lab, copied, refusal):
    out = copied.parent / "file.safetensors"
    runs = (
        ["report", copied, "--pictures"],
        ["export", copied, out],
        ["compare", "ce", "mac_cal", *SHORT, "--out", copied],
    )
    for command in runs:
        message = refusal(*command)
        assert "needs the plug-ins plugin_" in message
        assert set(message.split()) >= {str(word) for word in named(lab)}


READERS = (["status"], ["analyze", "ranks"])


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_changed_plug_in_is_refused_where_there_are_rows_of_the_old_one(
    command, copied, changed, refusal
):
    message = refusal(*command, copied, "--plugin", changed)
    assert f"contains results of plug-in {changed.stem} from before a change" in message
    assert "another --out, or give its old text as --plugin" in message


def test_the_command_itself_refuses_a_changed_plug_in_too(lab, changed, refusal):
    assert "from before a change" in refusal(*compare(lab))


def test_finished_trials_of_a_plug_in_are_not_repeated(lab):
    finished = rows(lab / "out")
    assert here(*compare(lab)).returncode == 0
    assert rows(lab / "out") == finished


FILE = """
plugins: [lab/plugin_loss.py, lab/plugin_head.py, {broken}lab/plugin_metric.py]
set: {{network: {{epochs: 1, augment: none}}, head: {{epochs: 1, augment: none}}}}
entries:
  losses: {{methods: [ce, poly]}}
  heads: {{methods: [cosine], search: {{trials: 2, metric: ks, population: 2, guard: 1}}}}
"""


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "lab").mkdir()
    for name in NAMES:
        shutil.copy(EXAMPLES / f"plugin_{name}.py", tmp_path / "lab")
    path = tmp_path / "experiment.yaml"
    path.write_text(FILE.format(broken=""))
    return path


def test_a_broken_plug_in_names_its_line_and_that_of_the_experiment_file(file, refusal):
    file.write_text(FILE.format(broken="lab/broken.py, "))
    (file.parent / "lab/broken.py").write_text("\n1 / 0\n")
    message = refusal("run", file, "--dry-run")
    assert f"{file} line 2: plugins" in message
    assert "broken.py line 2: ZeroDivisionError" in message


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_file_runs_on_two_nodes_that_have_no_such_file(own_ray, file, refusal):
    """The files go as soon as the driver has read them; all work is the other node's."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.add_node(num_cpus=2)
    out, lab = file.parent / "out", file.parent / "lab"
    file.write_text(file.read_text() + f"out: {out}\n")
    try:
        command = command_line("run", file, "--address", cluster.address)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not list(out.glob("losses*/sweep.json")) and process.poll() is None:
            time.sleep(0.01)
        lab.rename(file.parent / "away")
        _, output = process.communicate()
        assert process.returncode == 0, output
        (searched,) = out.glob("heads*")
        (file.parent / "away").rename(lab)
        assert {row["status"] for row in rows(searched)} == {"done"}
        assert all(row["select/ks"] > 0 for row in rows(searched))
        options = [word for name in NAMES for word in ("--plugin", lab / f"plugin_{name}.py")]
        assert "needs the plug-in" in refusal("resume", searched, "--trials", "4")
        longer = cli("resume", searched, "--trials", "4", *options)
        assert longer.returncode == 0, longer.stderr
        assert len({row["rung"] for row in rows(searched)}) == 5  # the baseline among them
        assert cli("evaluate", searched, "--seeds", "1", *options).returncode == 0
    finally:
        ray.shutdown()
        cluster.shutdown()
