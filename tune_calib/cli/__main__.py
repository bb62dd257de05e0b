"""``python -m tune_calib.cli`` is ``tune-calib``."""

from tune_calib.cli import main

main()
