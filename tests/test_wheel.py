"""Test the built wheel, in an environment with it and the packages that it requires, no others."""

import json
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.test_repository import required

ROOT = Path(__file__).parents[1]
PACKAGES = ("tune_calib", "search_spaces", "ablations", "analysis")

USE = """
import json
import numpy as np
import analysis, tune_calib
from importlib.resources import files

network = tune_calib.load_calibrated("calibrated.safetensors")
probabilities = network(np.zeros((2, 1, 8, 8), np.uint8))
ladder = tune_calib.open_results(files("analysis") / "example/ladder")
print(json.dumps({
    "packages": [tune_calib.__file__, analysis.__file__],
    "sums": probabilities.sum(1).tolist(),
    "rows": len(ladder.rows),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy of what it is built from, so that no earlier build adds files to it.
    source = folder / "source"
    source.mkdir()
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        subprocess.run(["cp", "-r", ROOT / name, source], check=True)
    run(folder, sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, source)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """The programs of an environment with the wheel and links to what it requires of ours."""
    folder = tmp_path_factory.mktemp("environment")
    run(folder, sys.executable, "-m", "venv", folder)
    programs = folder / "bin"
    run(folder, programs / "python", "-m", "pip", "install", "--no-deps", wheel)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in required() - {"tune-calib"}:
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(distribution.locate_file(top))
    return programs


def run(folder: Path, *words: object) -> str:
    """Run a command in a folder, without the variables that lead to our checkout."""
    command = list(map(str, words))
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.slow
def test_wheel_has_the_files_of_the_packages(wheel):
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    names = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == names


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(600)
def test_demo_export_and_report_work_outside_the_checkout(environment, tmp_path):
    program = environment / "tune-calib"
    demo = ["ablate", "mac_cal", "--controls", "--epochs", "10", "--head-epochs", "5"]
    printed = run(tmp_path, program, *demo, "--out", "runs/demo")
    assert "+ decaying adaptive sparsity" in printed
    run(tmp_path, program, "export", "runs/demo", "calibrated.safetensors", "--best", "nll")
    run(tmp_path, program, "report", "runs/demo")
    assert (tmp_path / "runs/demo/report.html").stat().st_size > 100_000
    assert (tmp_path / "runs/demo/figures/reliability.pdf").is_file()
    printed_values = json.loads(run(tmp_path, environment / "python", "-c", USE))
    assert printed_values["sums"] == pytest.approx([1, 1])
    assert printed_values["rows"] == 40
    for package in map(Path, printed_values["packages"]):
        assert package.is_relative_to(environment.parent)


@pytest.mark.slow
def test_files_beside_the_modules_are_found_outside_the_checkout(environment, tmp_path):
    """References, ladders, tables of papers, recipes, published numbers."""
    program = environment / "tune-calib"
    for words in (
        ["explain", "mac_cal", "--bibtex"],
        ["list", "ladders"],
        ["list", "recipes"],
        ["list", "published", "fedlas/table1"],
        ["reproduce", "maccal/table5", "--scale", "smoke", "--dry-run", "--out", "runs"],
    ):
        assert run(tmp_path, program, *words)
