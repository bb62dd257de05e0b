"""Tests on the emulated GPU: in a process of its own, since it changes torch for the whole process.

A test marked ``on_device`` is carried out by that process, which imports its module, calls it, and
answers with what it raised. One process serves all tests of a worker of pytest.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu.device import KNOWN_TORCH, install

HOOKS = Path(__file__).with_name("hooks.cpp")


class DeviceProcess:
    """A process with the emulated GPU, which carries out tests one by one."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="tune-calib-gpu-")
        self.hooks = Path(self.folder.name, "hooks.so")
        compile_hooks(self.hooks)
        self.errors = Path(self.folder.name, "stderr")
        self.process: subprocess.Popen[str] | None = None
        atexit.register(self.close)

    def start(self) -> subprocess.Popen[str]:
        if self.process is None:
            command = [sys.executable, "-m", "tests.gpu.process", str(self.hooks)]
            with self.errors.open("w") as errors:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=HOOKS.parents[2],
                    env={**os.environ, "TUNE_CALIB_CACHE": self.folder.name},
                )
        return self.process

    def carry_out(self, module: str, name: str, arguments: dict[str, Any]) -> None:
        """Carry out a test, which fails or is skipped here if it fails or is skipped there."""
        process = self.start()
        try:
            print(
                json.dumps([module, name, arguments], default=str), file=process.stdin, flush=True
            )
            answer = process.stdout.readline()
        except BaseException:  # a test that takes too long, too
            self.stop()
            raise
        if not answer:
            self.stop()
            pytest.fail(f"the process ended:\n{self.errors.read_text()[-4000:]}", pytrace=False)
        outcome, message = json.loads(answer)
        if outcome == "skipped":
            pytest.skip(message)
        if outcome == "failed":
            pytest.fail(message, pytrace=False)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def close(self) -> None:
        self.stop()
        self.folder.cleanup()


def compile_hooks(target: Path) -> None:
    """Compile hooks.cpp, or skip the test where that is impossible."""
    version = torch.__version__.partition("+")[0]
    if version != KNOWN_TORCH:
        pytest.skip(f"a GPU is emulated for torch {KNOWN_TORCH}, not for {version}")
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("a GPU is emulated with the help of g++, which this machine lacks")
    root = Path(torch.__file__).parent
    command = [compiler, "-shared", "-fPIC", "-std=c++20", str(HOOKS), "-o", str(target)]
    command += [f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include"]
    command += [f"-L{root}/lib", "-lc10", "-ltorch_cpu"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.fail(f"hooks.cpp does not compile:\n{ended.stderr[-2000:]}", pytrace=False)


process = functools.cache(DeviceProcess)


def on_device(test: Callable[..., None]) -> Callable[..., None]:
    """Carry out a slow test, whose arguments are JSON or paths, where the GPU is emulated."""

    @functools.wraps(test)
    def carry_out(**arguments: Any) -> None:
        process().carry_out(test.__module__, test.__name__, arguments)

    # The first test of a process also waits for the compiler and for imports.
    return pytest.mark.timeout(300)(pytest.mark.slow(carry_out))


def answer(module: str, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """Call a test in this process; return its outcome, and the reason."""
    test = getattr(importlib.import_module(module), name).__wrapped__
    if "tmp_path" in arguments:
        arguments["tmp_path"] = Path(arguments["tmp_path"])
    try:
        test(**arguments)
    except pytest.skip.Exception as reason:
        return "skipped", str(reason)
    except BaseException:
        return "failed", traceback.format_exc()
    return "passed", ""


def main() -> None:
    """Carry out the tests that standard input names, one a line."""
    answers, sys.stdout = sys.stdout, sys.stderr
    torch.set_num_threads(1)
    install(Path(sys.argv[1]))
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            outcome = answer(*json.loads(line))
        print(json.dumps(outcome), file=answers, flush=True)


if __name__ == "__main__":
    main()
