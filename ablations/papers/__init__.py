"""The tables and figures of the papers, a file each: ``tune-calib reproduce PAPER/TABLE``."""

from pathlib import Path

from tune_calib.spec.reproduction import REPRODUCTIONS, read_reproduction

for _folder in __path__:
    for _file in sorted(Path(_folder).glob("*.yaml")):
        REPRODUCTIONS.register(read_reproduction(_file))
