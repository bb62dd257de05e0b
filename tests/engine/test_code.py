"""The code of a trial is that of its methods and the engine, without comments and docstrings."""

import json
import math
import shutil
from pathlib import Path

import pytest

from tests.support import CPU, drive
from tune_calib.data.splits import load_development
from tune_calib.engine import code as code_of
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank, load_network
from tune_calib.engine.bank import DevelopmentBank, bank_key
from tune_calib.engine.store import Store
from tune_calib.errors import RefusedError, UserError
from tune_calib.results.tables import read_table
from tune_calib.spec import code
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.provenance import Provenance
from tune_calib.tuning.work.workers import NetworkWorker

CE = {
    "dataset": "digits", "backbone": "small_cnn", "network_method": "ce", "head_method": None,
    "posthoc_method": None,
}  # fmt: skip
HEAD = {**CE, "head_method": "mac_cal", "posthoc_method": "temperature"}
# An edit of a module of the program, and the modules of ``CE`` and of ``HEAD`` that it changes.
EDITS = {
    "a comment": ("engine/network.py", lambda text: f"# Changed.\n{text}", [], []),
    "a docstring": (
        "engine/network.py", lambda text: text.replace('"""', '"""Changed. ', 1), [], []
    ),
    "spaces": ("engine/network.py", lambda text: text.replace(" = ", "  =  "), [], []),
    "the engine": (
        "engine/network.py", lambda text: f"{text}\nX = 1\n", ["engine.network"], ["engine.network"]
    ),
    "a method": ("methods/mac_cal.py", lambda text: f"{text}\nX = 1\n", [], ["methods.mac_cal"]),
    "another method": ("methods/ls.py", lambda text: f"{text}\nX = 1\n", [], []),
    "what methods share": (
        "methods/_posthoc.py", lambda text: f"{text}\nX = 1\n", [], ["methods._posthoc"]
    ),
    "a metric": (
        "metrics/binning.py", lambda text: f"{text}\nX = 1\n", ["metrics.binning"],
        ["metrics.binning"],
    ),
    "another data set": ("data/datasets/svhn.py", lambda text: f"{text}\nX = 1\n", [], []),
    "the command line": ("cli/run.py", lambda text: f"{text}\nX = 1\n", [], []),
}  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    source = Path(code.__file__).parents[1]
    shutil.copytree(source, root / "tune_calib", ignore=shutil.ignore_patterns("__pycache__"))
    return root


READ: dict[str, object] = {}  # modules of the copy, which few edits change


@pytest.fixture
def edited(checkout, monkeypatch):
    """A function that edits a module of a copy of the program, whose code then counts."""
    monkeypatch.setattr(code, "_ROOT", checkout)
    monkeypatch.setattr(code, "LOADED_AT", math.inf)
    read, before = code._read_module.__wrapped__, dict[Path, str]()

    def read_once(name):
        if name not in READ:
            READ[name] = read(name)
        return READ[name]

    monkeypatch.setattr(code, "_read_module", read_once)

    def edit(module: str, change) -> None:
        path = checkout / "tune_calib" / module
        before.setdefault(path, path.read_text())
        path.write_text(change(path.read_text()))
        READ.pop("tune_calib." + module.removesuffix(".py").replace("/", "."), None)

    yield edit
    for path, text in list(before.items()):
        edit(path.relative_to(checkout / "tune_calib").as_posix(), lambda _, text=text: text)


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_counts_for_the_trials_whose_numbers_it_may_change(kind, edited):
    module, change, *expected = EDITS[kind]
    before = [code_of.read_code(names) for names in (CE, HEAD)]
    edited(module, change)
    now = [code_of.read_code(names) for names in (CE, HEAD)]
    found = [code.list_changes(*pair) for pair in zip(before, now, strict=True)]
    assert found == [", ".join(names) for names in expected]


def test_a_source_that_changed_after_it_was_loaded_is_refused(edited, monkeypatch):
    edited("engine/network.py", lambda text: text)
    monkeypatch.setattr(code, "LOADED_AT", 0)
    with pytest.raises(UserError, match=r"\.py was changed after this program started"):
        code_of.read_code(CE)


def test_two_releases_are_equal_but_not_a_release_and_an_edited_checkout():
    old, new = {"engine.bank": "1", code.RELEASED: ""}, {"engine.bank": "2", code.RELEASED: ""}
    assert code.list_changes(old, new) == ""
    assert code.list_changes(old, {"engine.bank": "2"}) == "engine.bank"
    assert code.list_changes(old, {"engine.bank": "1"}) == ""
    many = dict.fromkeys("abcde", "1")
    assert code.list_changes(many, {}) == "a, b, c, and 2 others"


SPEC = TrialSpec.build(
    data={"train_fraction": 0.1}, network={"method": "ce", "backbone": "small_cnn", "epochs": 2}
)


def test_networks_and_checkpoints_of_other_code_are_refused_and_features_computed_again(
    edited, tmp_path
):
    store, development = Store(tmp_path), load_development(SPEC.data, None, tmp_path)
    key = bank_key(SPEC, None)

    def train(steps: int) -> None:
        run = NetworkTraining(SPEC, store, development, CPU)
        try:
            for _ in range(steps):
                run.step()
        finally:
            run.close()

    def bank() -> DevelopmentBank:
        return ensure_bank(DevelopmentBank, SPEC, key, store, lambda: (development, None), CPU)

    train(1)
    edited("engine/steps.py", lambda text: f"{text}\nX = 1\n")
    with pytest.raises(RefusedError, match=r"changed: engine.steps\): .*`store`.*`accept_code`"):
        train(2)
    edited("engine/steps.py", lambda text: text.removesuffix("\nX = 1\n"))
    train(2)
    first = bank().manifest
    assert bank().manifest == first
    edited("engine/bank.py", lambda text: f"{text}\nX = 1\n")
    train(1)  # it does not use the bank
    again = bank().manifest
    assert code.list_changes(first["code"], again["code"]) == "engine.bank"
    assert first["files"] == again["files"]
    assert load_network(SPEC, store, CPU).manifest["code"] == code_of.code_of_network(SPEC)


def test_a_node_with_other_code_than_the_driver_is_refused_and_rows_name_their_code(tmp_path):
    def run(driver: dict[str, str]) -> NetworkWorker:
        place = Provenance(str(tmp_path / "out"), str(tmp_path / "store"), code=driver)
        trial = {"spec": SPEC.model_dump(mode="json"), "rung": 0, "label": "x"}
        work = {"name": "n", "kind": "network", "trials": [trial]}
        return NetworkWorker({"run": place.plain(), "job": work})

    own = code_of.code_of_trials([SPEC])
    with pytest.raises(RefusedError, match=r"not that of the driver \(changed: methods.ce\)"):
        run({**own, "methods.ce": "0" * 8, "methods.ls": "0" * 8})
    actor = run(own)
    drive(actor)
    actor.cleanup()
    (row,) = read_table(tmp_path / "out", "trials").to_pylist()
    assert json.loads(row["code"]) == own
