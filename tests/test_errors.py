"""A mistake is spelt for whoever made it: as an option, at its line of a file, or for Python."""

import pickle

import pytest

from tests.support import here
from tune_calib.cli.entry import as_option
from tune_calib.errors import UserError, find_cause, spell_settings
from tune_calib.spec.request import SearchRequest, build_request

# A command to be typed, or what git is asked, is no name of a setting.


def test_a_mistake_is_spelt_for_command_line_file_and_python(tmp_path):
    with pytest.raises(UserError, match=r"^`guard` must be at most 1, got 2$") as raised:
        build_request(SearchRequest, {"method": "ls", "guard": 2})
    assert as_option(raised.value) == "--guard must be at most 1, got 2"
    assert spell_settings(raised.value) == "guard must be at most 1, got 2"
    assert here("search", "ls", "--guard", 2, "--out", tmp_path / "out").stderr == (
        "error: --guard must be at most 1, got 2.0\n"
    )


def test_an_option_of_earlier_versions_is_hidden_and_without_effect():
    ended = here("ablate", "mac_cal", "--accept-code", "--dry-run")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("accept_code has no effect") == 1
    assert "--accept-code" not in ended.stdout + here("ablate", "--help").stdout


def test_an_error_that_another_process_raised_carries_its_setting():
    error = pickle.loads(pickle.dumps(UserError("must be 0 or 1", setting="gpus")))
    assert (str(error), error.setting) == ("`gpus` must be 0 or 1", "gpus")
    assert UserError("network.lr must be above 0").setting == "network.lr"


def test_a_mistake_is_at_the_line_of_its_setting(tmp_path):
    """In the entry, or at the top of the file, where another entry has it too."""
    file = tmp_path / "experiment.yaml"
    file.write_text(
        f"out: {tmp_path / 'out'}\n"
        "set:\n  head:\n    lr: 0\n"
        "entries:\n  a:\n    ladder: mac_cal\n    set: {head: {lr: 0.1}}\n"
        "  b:\n    methods: [mac_cal]\n"
    )
    assert here("run", file).stderr.startswith(f"error: {file} line 4: set.head.lr: head.lr")


TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 1, in step
    fit(x)
  File "b.py", line 2, in fit
    raise
    ^^^^^
"""
CAUSES = {
    "own": (f"{TRACEBACK}ValueError: no rows\n", "ValueError: no rows"),
    "Ray": (
        "The actor died unexpectedly.\n\tclass_name: JobTrainable\n\tpid: 7\nThe worker exited "
        "by SIGKILL. Some common causes include: (1) the process was killed",
        "The actor died unexpectedly. The worker exited by SIGKILL",
    ),
    "long": (
        f"{TRACEBACK}ValueError: {'x' * 2000} (refused)",
        f"ValueError: {'x' * 138} ... {'x' * 140} (refused)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_a_message_of_a_failure_is_its_cause_without_advice(case):
    text, cause = CAUSES[case]
    assert find_cause(text) == cause
