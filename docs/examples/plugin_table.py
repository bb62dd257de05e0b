"""Register table 2 of a fictitious paper from the YAML file in the same folder."""

from pathlib import Path

from tune_calib.spec.reproduction import REPRODUCTIONS, read_reproduction

REPRODUCTIONS.register(read_reproduction(Path(__file__).with_name("smoothing_table2.yaml")))
