"""What a report was made of: results and program."""

from pathlib import Path

import analysis
import tune_calib
from tune_calib.results import digests


def test_the_digest_of_the_program_is_of_all_its_sources(monkeypatch):
    before = digests.digest_program()
    stat = Path.stat
    for package, name in ((tune_calib, "results/digests.py"), (analysis, "style.py")):
        file = Path(package.__file__).parent / name

        def elsewhere(path, file=file, **options):
            """Return the state of another file for this one."""
            return stat(Path(__file__) if path == file else path, **options)

        with monkeypatch.context() as changed:
            changed.setattr(Path, "stat", elsewhere)
            assert digests.digest_program() != before
    assert digests.digest_program() == before
