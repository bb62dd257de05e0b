"""Where the files of a report lie, as a command says it."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from tune_calib.paths import Place


def whereabouts(out: Place, names: Sequence[str]) -> list[str]:
    """A line a folder of files, each of which is named once, whatever formats it is in.

    Args:
        out: folder of the results.
        names: paths of the files in it.
    """
    stems: dict[str, dict[str, None]] = {}
    for path in map(PurePosixPath, names):
        stems.setdefault(path.parent.name, {})[path.stem] = None
    lines = [f"page     {out / name}" for name in names if "/" not in name]
    return lines + [
        f"{folder:8} {out / folder}: {', '.join(own)}" for folder, own in stems.items() if folder
    ]
