"""Register the tables, which are read when the first of them is looked up."""

from pathlib import Path

from tune_calib.spec.reproduction import REPRODUCTIONS, read_reproduction

for _file in sorted(Path(__file__).parent.glob("*.yaml")):
    REPRODUCTIONS.register(read_reproduction(_file))
