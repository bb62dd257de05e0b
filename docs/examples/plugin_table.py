"""Table 2 of an invented paper, which the file beside this one describes."""

from pathlib import Path

from tune_calib.spec.reproduction import REPRODUCTIONS, read_reproduction

REPRODUCTIONS.register(read_reproduction(Path(__file__).with_name("smoothing_table2.yaml")))
