"""The ready files for clusters: whole, true to the command line, and the Slurm script at work."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import typer
import yaml

import tune_calib.cli
from tune_calib.results.tables import read_table

FOLDER = Path(tune_calib.__file__).parent / "cluster"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".yaml", ".sh"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_command_in_a_file_has_only_options_that_exist(path):
    commands = r"(?:tune-calib|slurm\.sh|slurm-array\.sh) ((ablate|search) .*?--gpus [\d.]+)"
    words = re.search(commands, path.read_text(), re.S)
    assert words, "every file shows a whole command"
    given = set(re.findall(r"--[a-z-]+", words.group(1)))
    command = typer.main.get_command(tune_calib.cli.app).commands[words.group(2)]
    assert given <= {option for parameter in command.params for option in parameter.opts}
    assert {"--out", "--store", "--data-root"} <= given


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".yaml"], ids=lambda p: p.name)
def test_a_cluster_file_is_yaml(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_the_image_has_the_ray_that_is_tested():
    pinned = re.search(r"^ray==(.*)$", (FOLDER.parents[1] / "constraints.txt").read_text(), re.M)
    job = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pinned.group(1)
    assert f"rayproject/ray:{pinned.group(1)}-" in (FOLDER / "Dockerfile").read_text()


# ``health-check`` has the exit code HEALTHY; ``ray.nodes()`` has only the first node.
RAY = 'echo "$*" >>"$CALLS"; [[ $1 != health-check ]] || exit $HEALTHY'
RAY_MODULE = """
class util:
    get_node_ip_address = staticmethod(lambda: "10.0.0.1")

def init(**options): ...

def nodes():
    return [{"Alive": True, "NodeManagerHostname": "node1.local", "NodeManagerAddress": "10.0.0.1"}]
"""


def run_script(folder, nodes, arguments, program, healthy=0) -> subprocess.CompletedProcess:
    """Run the Slurm script with stand-ins for the programs of Slurm, Ray and this one."""
    stand_ins = {
        "scontrol": f"printf '%s\\n' {nodes}",
        "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
        "ray": RAY,
        "tune-calib": program,
        "python": f'exec {sys.executable} -S "$@"',
    }
    for name, body in stand_ins.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    (folder / "ray.py").write_text(RAY_MODULE)
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "CALLS": str(folder / "calls"),
        "HEALTHY": str(healthy),
        "TUNE_CALIB_WAIT_S": "0",
        "SLURM_JOB_ID": "39999",
        "SLURM_JOB_NODELIST": "node[1-3]",
    }
    script = ["bash", str(FOLDER / "slurm.sh"), *arguments]
    return subprocess.run(script, env=environment, capture_output=True, text=True, timeout=20)


def test_the_slurm_script_runs_a_command_of_an_earlier_job_on_its_own_cluster(tmp_path):
    printed = ["evaluate", "my runs/a", "--address", "10.9.9.9:20000", "--seeds", "3"]
    done = run_script(tmp_path, "node1", printed, 'printf "%s\\n" "$@"; exit 3')
    assert done.returncode == 3
    kept = ["evaluate", "my runs/a", "--seeds", "3"]
    assert done.stdout.splitlines() == [*kept, "--address", "10.0.0.1:23999"]


def test_a_task_of_a_job_array_is_a_worker_of_as_many_as_there_are(tmp_path):
    (tmp_path / "tune-calib").write_text('#!/bin/bash\nprintf "%s\\n" "$@"')
    (tmp_path / "tune-calib").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(FOLDER / "slurm-array.sh"), "search", "ls", "--out", "my runs/a"],
        env={**os.environ, "PATH": path, "SLURM_ARRAY_TASK_COUNT": "16"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = ["search", "ls", "--out", "my runs/a", "--worker", "--at-once", "16"]
    assert done.stdout.splitlines() == words


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_slurm_script_makes_a_cluster_of_its_nodes_and_ends_with_the_driver(tmp_path):
    """Two nodes, both this machine: only the programs that Slurm brings are stand-ins."""
    stand_ins = {
        "scontrol": "printf 'node1\\nnode2\\n'",
        "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
    }
    for name, body in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{programs}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_CPUS_PER_TASK": "1",
    }
    quick = ["--epochs", "1", "--head-epochs", "1", "--out", str(tmp_path / "out")]
    log = tmp_path / "log"
    with log.open("w") as said:  # no pipe: the cluster holds it open when the driver is done
        process = subprocess.Popen(
            ["bash", str(FOLDER / "slurm.sh"), "ablate", "mac_cal", *quick],
            env=environment,
            start_new_session=True,
            stdout=said,
            stderr=said,
        )
    try:
        assert process.wait(timeout=400) == 0, log.read_text()
        assert read_table(tmp_path / "out", "trials").num_rows == 6
    finally:
        for other in psutil.process_iter(["pid"]):
            if os.getpgid(other.pid) == process.pid:
                os.kill(other.pid, signal.SIGKILL)
