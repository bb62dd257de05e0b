"""The page of claims is what the results that ship say, and these are results like any others."""

import json
import shlex
import tarfile
from functools import cache
from operator import attrgetter

import numpy as np
import pytest

from analysis.load import load, read_trials
from analysis.reproduction.files import Made
from analysis.reproduction.overview import PAGE, TABLES_PAGE
from docs import result_tables
from docs.results import PAGES, SHIPPED, pages, read_shipped, ship, ship_logits
from tests.tuning.test_present_format import ARCHIVE
from tune_calib.errors import UserError
from tune_calib.experiments.entries import build_entries
from tune_calib.experiments.reproduced import ReproduceRequest, TableRequest, build_file
from tune_calib.files.documents import seal, unseal
from tune_calib.results.tables import read_table
from tune_calib.spec.reproduction import REPRODUCTIONS


@cache
def stored() -> list[Made]:
    """What ships, which takes seconds to read."""
    return read_shipped()


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
    names = {made.table.name for made in stored()}
    for name in names:
        claims = [claim for claim in REPRODUCTIONS[name].claims if "ood/svhn" not in claim.metric]
        assert all(claim.text in ran for claim in claims)  # SVHN was not evaluated
        assert f"\n## {name}\n" in read(TABLES_PAGE)
    absent = {line.split("|")[1].strip() for line in rest.strip().splitlines()[2:]}
    assert absent
    assert absent <= set(REPRODUCTIONS) - names


@pytest.mark.slow
def test_commands_of_the_claims_name_existing_tables():
    lines = [line for line in read(TABLES_PAGE).splitlines() if line.startswith("tune-calib ")]
    commands = [command_line for made in stored() for command_line in made.command.split(" && ")]
    assert sorted(lines) == sorted(commands)
    for line in lines:
        words = shlex.split(line)
        _, command, name = words[:3]
        assert command == "reproduce"
        scale = words[words.index("--scale") + 1] if "--scale" in words else "cpu"
        assert scale in REPRODUCTIONS[name].scales


def test_what_ships_is_small_and_names_no_machine():
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*.parquet")) < 22e6
    for path in SHIPPED.rglob("*.json"):
        command = json.loads(path.read_text()).get("command") or ""
        assert not [word for word in shlex.split(command) if word.startswith("/")]


@pytest.mark.slow  # reads all shipped rows; make docs runs it
@pytest.mark.timeout(600)  # effects of all designs
def test_the_tables_of_results_are_those_of_the_stored_rows():
    for path, text in result_tables.generate():
        assert "<!-- results" in text
        assert path.read_text(encoding="utf-8") == text, f"run make results, which updates {path}"


@pytest.mark.parametrize(
    "folder", sorted((SHIPPED / "day").glob("maccal-*")), ids=attrgetter("name")
)
def test_shipped_trials_of_mac_cal_are_those_of_the_tables_of_today(folder, tmp_path):
    """A default that changes must be pinned in the tables."""
    table = REPRODUCTIONS[folder.name.replace("-", "/", 1)]
    how = {"seeds": 3, "set": {"network.precision": "bf16"}}
    request = ReproduceRequest(scale="day", out=str(tmp_path), **how)
    planned = set()
    for entry in build_entries(build_file(TableRequest(table, request))):
        planned |= {trial.spec.hash for trial in entry.run.planned_trials}
    for path in folder.glob("*/trials"):
        shipped = read_table(path.parent, "trials", columns=["spec_hash"])["spec_hash"].to_pylist()
        assert set(shipped) <= planned


def test_a_table_of_results_refuses_what_it_cannot_tell_apart():
    columns = [{"runs": ["day/maccal-table5/ladder-cifar10"], "metrics": ["ece"]}]
    with pytest.raises(UserError, match="'typo': no finished trial"):
        result_tables.format_table(
            {"rows": {"net": "vanilla", "typo": "vanila"}, "columns": columns}
        )
    columns[0]["runs"].append(
        "resnets-cifar10/maccal-table5/ladder-given-resnet20_he-cifar10-resnet20_he"
    )
    with pytest.raises(UserError, match="several network settings"):
        result_tables.format_table({"rows": {"net": "vanilla"}, "columns": columns})


def test_plain_runs_ship_without_draws_and_with_logits(tmp_path, monkeypatch):
    monkeypatch.setattr("docs.results.SHIPPED", tmp_path / "shipped")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for name in ("run", "search"):
        out = tmp_path / name
        manifest_path = next(
            path for path in (out / "sweep.json", out / "search.json") if path.exists()
        )
        manifest = unseal(manifest_path.read_bytes(), manifest_path)
        manifest_path.write_bytes(
            seal({**manifest, "command": f"tune-calib x --store {out}/store"})
        )
        assert ship(out, "new") == [out]
        shipped = tmp_path / "shipped/new" / name
        assert unseal((shipped / manifest_path.name).read_bytes(), shipped)["command"] == (
            "tune-calib x --store store"
        )
        assert read_trials(shipped).equals(read_trials(out))
    run = load(tmp_path / "shipped/new/run")
    assert len(run.trials)
    assert len(run.bins)
    assert (tmp_path / "shipped/new/search/evaluation/trials").is_dir()
    ship(tmp_path / "run", "small", only=["ece", "nll"])
    small = load(tmp_path / "shipped/small/run")
    reported = {name for name in small.trials if name.startswith(("select/", "test/"))}
    assert reported == {"test/ece", "test/nll"}
    assert small.trials["test/ece"].to_numpy() == pytest.approx(run.trials["test/ece"], rel=1e-6)
    assert set(small.bins["split"]) == {"test"}
    ship_logits(tmp_path / "run", tmp_path / "run/store", tmp_path / "logits")
    (network,) = (tmp_path / "logits").iterdir()
    logits = np.load(network / "test.npz")
    accuracy = (logits["logits"].argmax(-1) == logits["labels"]).mean()
    base = run.trials[run.trials["head_method"].isna()]
    assert accuracy == pytest.approx(base["test/accuracy"].iloc[0])
    assert logits["logits"].dtype == np.float16
    record = json.loads((network / "logits.json").read_text())
    assert record["data_digest"] == base["data_digest"].iloc[0]
    assert set(record["files"]) == {"select.npz", "calib.npz", "test.npz"}
