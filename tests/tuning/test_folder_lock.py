"""A second driver on a folder: it is refused, and it writes nothing."""

import pytest

from tests import fake_results
from tests.support import job_in
from tune_calib.cli import main
from tune_calib.results.manifests import RUN_MANIFEST
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.folder import RunLocation, only_driver
from tune_calib.tuning.search.definition import Objective, SearchDefinition
from tune_calib.tuning.search.run import SearchRun

QUICK = ["--epochs", "1", "--head-epochs", "1", "--set", "network.augment=none"]
SWEEP = "out: OUT\nentries: {a: {ladder: mac_cal}}\n"


def tree(folder) -> dict[str, bytes | None]:
    """Everything below a folder, with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


GIVEN = {
    "data": {"dataset": "digits"},
    "network": {"epochs": 1, "augment": "none"},
    "head": {"epochs": 1},
}


def begun_sweep(out, seeds, given=GIVEN) -> None:
    job = job_in(out, given, seeds)
    job.build_manifest().write(out)


def begun_search(out) -> None:
    question = SearchDefinition(
        "mac_cal", ResolvedRequest(GIVEN).with_recipe(), Objective(("ece",), 0.01)
    )
    job = SearchRun(
        question, 4, RunLocation(out, out / "store", command="tune-calib search"), at_once=2
    )
    job.build_manifest().write(out)


COMMANDS = {
    "ablate, more seeds": (
        lambda out: begun_sweep(out, 1),
        ["ablate", "mac_cal", *QUICK, "--seeds", "3", "--out", "OUT"],
    ),
    "resume": (begun_search, ["resume", "OUT", "--trials", "9"]),
    "evaluate": (begun_search, ["evaluate", "OUT", "--seeds", "2"]),
    "run": (lambda out: None, ["run", "FILE"]),
    "pictures": (fake_results.write, ["report", "OUT", "--pictures"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_driver_is_refused_and_writes_nothing(name, tmp_path, refusal):
    begin, command = COMMANDS[name]
    out, file = tmp_path / "out", tmp_path / "experiment.yaml"
    out.mkdir()
    begin(out)
    file.write_text(SWEEP.replace("OUT", str(out)))
    with only_driver(out):
        files = tree(tmp_path)
        places = {"OUT": out, "FILE": file}
        message = refusal(*(places.get(argument, argument) for argument in command))
        assert tree(tmp_path) == files
    assert "another tune-calib is running on" in message


def test_an_entry_whose_folder_another_driver_holds_shows_none_of_its_numbers(tmp_path, capsys):
    out, file = tmp_path / "out", tmp_path / "experiment.yaml"
    folder = out / "a-digits"
    folder.mkdir(parents=True)
    begun_sweep(folder, 1, {"data": {"dataset": "digits"}})
    manifest = (folder / RUN_MANIFEST).read_text()
    fake_results.write(folder)
    (folder / RUN_MANIFEST).write_text(manifest)
    file.write_text(SWEEP.replace("OUT", str(out)))
    with only_driver(folder):
        files = tree(folder)
        with pytest.raises(SystemExit) as ended:
            main(["run", str(file)])
        assert tree(folder) == files
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert "another tune-calib is running on" in printed.out
    assert "vanilla" not in printed.out
