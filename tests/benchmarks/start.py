"""How long the small things take, as ratios to an empty Python start, in one run.

python -m tests.benchmarks.start [--short] [CHECKOUT ...]

Each checkout is timed beside this one, e.g. a worktree of an earlier commit: one round of all
commands after the other, so that what else the machine does is shared by all. The long ones
(reports, an experiment file that is run and then finished) are timed once; --short leaves them out.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import fake_results
from tests.benchmarks.common import CORES

HERE = Path(__file__).parents[2]
ARCHIVE = HERE / "tests" / "present_format" / "formats-1.tar.xz"
ROUNDS = 3
PROGRAM = ["-m", "tune_calib.cli"]
EMPTY = "an empty Python start"

COMMANDS: Mapping[str, list[str]] = {
    EMPTY: ["-c", "pass"],
    "import tune_calib": ["-c", "import tune_calib"],
    "--help": [*PROGRAM, "--help"],
    "ablate --help": [*PROGRAM, "ablate", "--help"],
    "list methods": [*PROGRAM, "list", "methods"],
    "list backbones": [*PROGRAM, "list", "backbones"],
    "list recipes": [*PROGRAM, "list", "recipes"],
    "list ladder-figures": [*PROGRAM, "list", "ladder-figures"],
    "schema": [*PROGRAM, "run", "--schema"],
    "status of a sweep": [*PROGRAM, "status", "sweep"],
    "status of a search": [*PROGRAM, "status", "made/search"],
    "a wrong command": [*PROGRAM, "nope"],
    "a wrong option": [*PROGRAM, "ablate", "mac_cal", "--nope"],
    "a wrong method": [*PROGRAM, "compare", "nope"],
    "a wrong data set": [*PROGRAM, "ablate", "mac_cal", "--dataset", "nope"],
    "a wrong backbone": [*PROGRAM, "ablate", "mac_cal", "--backbone", "nope"],
    "a wrong setting": [*PROGRAM, "ablate", "mac_cal", "--set", "head.gama=1"],
    "a wrong folder": [*PROGRAM, "report", "nothing"],
    "a wrong sweep file": [*PROGRAM, "run", "nothing.yaml"],
}
LONG: Mapping[str, list[str]] = {
    "report, drawn": [*PROGRAM, "report", "sweep"],
    "report, as it was": [*PROGRAM, "report", "sweep"],
    "run, from the start": [*PROGRAM, "run", "experiment.yaml"],
    "run, finished": [*PROGRAM, "run", "experiment.yaml"],
}
SWEEP_FILE = """
out: all
set: {network: {epochs: 2}, head: {epochs: 2}}
seeds: 2
entries:
  losses: {methods: [ce, ls]}
  heads: {ladder: mac_cal}
"""


def seconds(words: list[str], checkout: Path, folder: Path) -> tuple[float, float]:
    """Wall and processor time of one process."""
    environment = os.environ | {
        "PYTHONPATH": str(checkout),
        "TUNE_CALIB_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": str(CORES),
    }
    start = os.times()
    subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True)
    after = os.times()
    processor = after.children_user + after.children_system
    return after.elapsed - start.elapsed, processor - start.children_user - start.children_system


def prepared(folder: Path) -> Path:
    """A run with invented numbers, and a search that an earlier version made."""
    fake_results.write(folder / "sweep")
    (folder / "experiment.yaml").write_text(SWEEP_FILE)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder / "made", filter="data")
    return folder


Times = dict[str, list[list[float]]]
"""Wall and processor time of each command, of each checkout."""


def measured(checkouts: list[Path], is_short: bool) -> Times:
    """The least of some rounds; the long ones are timed once."""
    rounds: list[dict[str, list[tuple[float, float]]]] = []
    least: Times = {}
    with tempfile.TemporaryDirectory() as root:
        folders = [prepared(Path(root) / str(index)) for index in range(len(checkouts))]
        beside = list(zip(checkouts, folders, strict=True))
        # Once for nothing: what is compiled is so from the second start on.
        for _ in range(ROUNDS + 1):
            times = {name: [seconds(w, *pair) for pair in beside] for name, w in COMMANDS.items()}
            rounds.append(times)
        for name in COMMANDS:
            pair = zip(*(times[name] for times in rounds[1:]), strict=True)
            least[name] = [[min(column) for column in zip(*took, strict=True)] for took in pair]
        for name, words in () if is_short else LONG.items():
            least[name] = [list(seconds(words, *pair)) for pair in beside]
    return least


def main(arguments: Sequence[str] = ()) -> None:
    """Print a row for each command: ratios of wall (and processor) time, of each checkout."""
    beside = [*(Path(word) for word in arguments if word != "--short"), HERE]
    times_by_command = measured(beside, "--short" in arguments)
    wall, processor = times_by_command[EMPTY][-1]
    print(f"{EMPTY}: {wall:.3f} s ({processor:.3f} s of processor time); ratios to it")
    print("".join([f"{'':24}", *(f"{path.resolve().name:>20}" for path in beside)]))
    for name, times in times_by_command.items():
        cells = "".join(f"{w / wall:11.0f} ({p / processor:6.0f})" for w, p in times)
        print(f"{name:24}{cells}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
