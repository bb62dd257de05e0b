"""What a report was made of: results and program, by content."""

from pathlib import Path

import analysis
import tune_calib
from tune_calib.results import digests


def test_the_digest_of_the_program_is_of_all_its_sources(monkeypatch):
    read = []
    monkeypatch.setattr(digests, "digest_file", lambda path: read.append(path) or "x")
    digests._digest_sources.__wrapped__()
    for package, file in ((tune_calib, "results/digests.py"), (analysis, "style.py")):
        assert Path(package.__file__).parent / file in read
