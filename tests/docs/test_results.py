"""The page of claims is what the results that ship say, and these are results like any others."""

import json
import shlex
import shutil
from functools import cache
from pathlib import Path

import pytest

from analysis.reproduction.files import Made
from analysis.reproduction.overview import PAGE, TABLES_PAGE
from docs.results import IMAGES, PAGES, ROOT, SHIPPED, pages, read_shipped
from tests.support import here
from tune_calib.results.digests import PACKAGES
from tune_calib.spec.reproduction import REPRODUCTIONS


@cache
def stored() -> list[Made]:
    """What ships, which takes seconds to read."""
    return read_shipped()


def folders() -> list[str]:
    runs = [run for made in stored() for _, run in made.runs]
    return [str(Path(str(run.out)).relative_to(SHIPPED)) for run in runs]


def parts(text: str) -> tuple[str, str]:
    """What was run, and the list of what was not, on which a new table need not be."""
    ran, _, rest = text.partition("\n## Not run\n")
    return ran, rest


def read(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_pages_agree_with_the_stored_results(monkeypatch):
    monkeypatch.setattr("docs.results.read_shipped", stored)
    for name, text in pages().items():
        assert parts(text)[0] == parts(read(name))[0], f"run make generate, which updates {name}"


@pytest.mark.slow
def test_the_pages_have_every_claim_of_what_was_run_and_the_rest_is_named():
    ran, rest = parts(read(PAGE))
    there = {own.table.name for own in stored()}
    for name in there:
        claims = [claim for claim in REPRODUCTIONS[name].claims if "ood/svhn" not in claim.metric]
        assert all(claim.text in ran for claim in claims)  # SVHN was not evaluated
        assert f"\n## {name}\n" in read(TABLES_PAGE)
    absent = {line.split("|")[1].strip() for line in rest.strip().splitlines()[2:]}
    assert absent
    assert absent <= set(REPRODUCTIONS) - there


@pytest.mark.slow
def test_commands_of_the_claims_name_existing_tables():
    lines = [line for line in read(TABLES_PAGE).splitlines() if line.startswith("tune-calib ")]
    commands = [one for own in stored() for one in own.command.split(" && ")]
    assert sorted(lines) == sorted(commands)
    for line in lines:
        _, command, name, option, scale = shlex.split(line)[:5]
        assert (command, option) == ("reproduce", "--scale")
        assert scale in REPRODUCTIONS[name].scales


def test_the_claims_have_exactly_their_pictures():
    text = read(TABLES_PAGE)
    assert all(f"(images/papers/{path.name})" in text for path in IMAGES.iterdir())
    assert text.count("](images/papers/") == len(list(IMAGES.iterdir()))


def test_what_ships_is_small_and_names_no_machine():
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*.parquet")) < 20e6
    for path in SHIPPED.rglob("*.json"):
        command = json.loads(path.read_text())["command"]
        assert not [word for word in shlex.split(command) if word.startswith("/")]


@pytest.mark.slow
def test_ranks_of_the_stored_results_are_up_to_date():
    for folder in folders():
        done = here("analyze", "ranks", SHIPPED / folder)
        assert done.returncode == 0, (folder, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["report"], ["analyze", "significance", "--test", "friedman"], ["status"]]
)
def test_commands_read_the_stored_results(command, tmp_path):
    out = shutil.copytree(SHIPPED / folders()[0], tmp_path / "out")
    done = here(*command, out)
    assert done.returncode == 0, done.stderr


def test_stored_results_are_not_packaged():
    assert not any(SHIPPED.is_relative_to(ROOT / package) for package in PACKAGES)
