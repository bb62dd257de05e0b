"""Run ``tune-calib`` as ``python -m tune_calib.cli``."""

from tune_calib.cli import main

main()
