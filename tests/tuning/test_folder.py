"""Which folders a run accepts."""

import pytest

from tune_calib.errors import UserError
from tune_calib.files.paths import name_temporary
from tune_calib.tuning.folder import refuse_foreign


def test_a_file_that_a_killed_process_left_unfinished_is_not_foreign(tmp_path):
    (tmp_path / name_temporary("search.json")).touch()
    refuse_foreign(tmp_path)
    (tmp_path / "results.csv").touch()
    with pytest.raises(UserError, match=r"contains results\.csv, which is not part of a run"):
        refuse_foreign(tmp_path)
