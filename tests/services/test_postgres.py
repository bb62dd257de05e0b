"""Searches whose study lies in a real PostgreSQL: the same, killed or not, server lost or not."""

import time

import optuna
import pytest

from tests.faults import common
from tests.support import command_line, rows

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

TRIALS = 24
SEARCH = [
    "search", "retrain", "--trials", TRIALS, "--population", 4, "--at-once", 1,
    "--epochs", 1, "--head-epochs", 2, "--set", "head.augment=none",
]  # fmt: skip


def start(*arguments):
    return common.spawn(command_line(*arguments))


def finish(process):
    return common.finish(process, limit_s=400)


def result(out):
    return rows(out, "sweep")


def wait_for_rows(out, process):
    """Until the search has rows of its own besides the baseline's."""
    while len(list(out.glob("trials/*.parquet"))) < 3 and process.poll() is None:
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()[1]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The search with its study in a journal file."""
    out = tmp_path_factory.mktemp("journal") / "search"
    code, output = finish(start(*SEARCH, "--out", out))
    assert code == 0, output
    return result(out)


def test_a_search_is_the_same_in_a_database_killed_and_resumed(postgres, journal, tmp_path):
    out = tmp_path / "killed"
    process = start(*SEARCH, "--out", out, "--study-storage", postgres.url)
    wait_for_rows(out, process)
    process.kill()
    process.wait()
    code, output = finish(start("resume", out, "--study-storage", postgres.url))
    assert code == 0, output
    assert result(out) == journal
    (study,) = optuna.get_all_study_summaries(postgres.url)
    assert study.n_trials == TRIALS


def test_a_server_that_goes_away_is_one_line_and_loses_nothing(postgres, journal, tmp_path):
    out = tmp_path / "lost"
    arguments = [*SEARCH, "--sampler-seed", 1, "--out", out, "--study-storage", postgres.url]
    process = start(*arguments)
    wait_for_rows(out, process)
    postgres.stop()
    code, output = finish(process)
    assert code not in (0, None)
    assert "Traceback" not in output
    assert "--study-storage" in output
    postgres.start()
    code, output = finish(start(*arguments))
    assert code == 0, output
    hashes = [row["spec_hash"] for row in result(out)]
    assert len(hashes) == len(set(hashes))
    undisturbed = tmp_path / "undisturbed"
    code, output = finish(start(*SEARCH, "--sampler-seed", 1, "--out", undisturbed))
    assert code == 0, output
    assert result(out) == result(undisturbed)
