"""Run the examples of the gallery and record what they print: ``python -m docs.gallery [NAME...]``.

Each runs in a process and a temporary folder of its own; ``docs/recordings`` gets its output.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ("plugin_loss", "plugin_dataset", "own_network", "own_search_space", "own_tuner")
"""Files of ``docs/examples`` that run by themselves."""


def run_example(name: str, folder: Path) -> str:
    """Run an example in a folder and return what it prints.

    Raises:
        RuntimeError: It failed; the message is its output on stderr.
    """
    command = [sys.executable, str(ROOT / "docs/examples" / f"{name}.py")]
    # Not on a cluster that another program on this machine has started or left behind.
    variables = {**os.environ, "RAY_ADDRESS": "local"}
    process = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        raise RuntimeError(process.stderr)
    return process.stdout


def recording_path(name: str) -> Path:
    """Return the file with the recorded output of an example."""
    return ROOT / "docs/recordings" / f"{name}.txt"


def main(*names: str) -> None:
    """Record some examples, or all."""
    for name in names or EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            recording_path(name).write_text(run_example(name, Path(folder)), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
