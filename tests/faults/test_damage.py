"""A full disk, and files that are changed behind the program's back."""

import contextlib
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.common import finish, result, run, start, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


# What fits: nothing of a checkpoint; the networks and not their banks; not all the results.
FULL = {"artifact": ("store", 600), "bank": ("store", 6_000), "results": ("out", 150)}


@pytest.mark.parametrize("what", FULL)
def test_a_full_disk_is_one_line_and_loses_nothing(what, reference, tmp_path):
    place, kilobytes = FULL[what]
    disk = tmp_path / "disk"
    with small_disk(disk, kilobytes):
        folders = {"out": tmp_path / "out", "store": tmp_path / "store", place: disk / "in"}
        arguments = folders["out"], "--store", folders["store"]
        code, output = run(*arguments)
        assert code != 0
        assert "cannot write" in output
        assert "No space left" in output or "os error 28" in output
        assert "Traceback" not in output
        subprocess.run(["mount", "-o", "remount,size=500m", str(disk)], check=True)
        code, output = run(*arguments)
        assert code == 0, output
        assert result(folders["out"]) == reference


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(byte ^ 0xFF for byte in content[middle : middle + 8])
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_not_used(reference, tmp_path):
    out = tmp_path / "sweep"
    process = start(out)
    pattern = "store/checkpoints/*/tensors.safetensors"
    assert wait_until(lambda: list(out.glob(pattern)), process)
    process.kill()
    process.wait()
    time.sleep(1)  # until the workers noticed
    for path in out.glob(pattern):
        damage(path)
    code, output = finish(start(out))
    assert code == 0, output
    assert result(out) == reference


@pytest.mark.parametrize("kind", ["networks", "banks"])
def test_a_damaged_artifact_is_made_again(kind, reference, tmp_path):
    out = tmp_path / "sweep"
    code, output = run(out)
    assert code == 0, output
    for path in out.glob(f"store/{kind}/*/*"):
        damage(path)
    # Heads alone are to be done again: they need the artifact.
    for path in out.glob("*/heads-*.parquet"):
        path.unlink()
    code, output = run(out)
    assert code == 0, output
    assert result(out) == reference


@pytest.mark.parametrize("table", ["trials", "curves", "bins"])
def test_a_damaged_result_is_named_and_can_be_made_again(table, reference, tmp_path):
    out = tmp_path / "sweep"
    code, output = run(out)
    assert code == 0, output
    victim = next(iter(sorted(out.glob(f"{table}/heads-*.parquet"))))
    victim.write_bytes(victim.read_bytes()[:-100])
    code, output = run(out)
    assert code == 2
    assert victim.name in output
    assert "Traceback" not in output
    for folder in ("trials", "curves", "bins"):
        (out / folder / victim.name).unlink()
    code, output = run(out)
    assert code == 0, output
    assert result(out) == reference
