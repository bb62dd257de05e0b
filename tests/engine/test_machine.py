"""Rows say where they were computed; portable trials; a run that goes on elsewhere."""

import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.support import CPU, QUICK, cli, drive, here, small_spec
from tune_calib.data.splits import load_development, load_test
from tune_calib.determinism import PORTABLE
from tune_calib.engine import machine as machine_module
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.machine import (
    environment_of,
    machine,
    memory_size,
    processor,
    require_environment,
)
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.files.store import ARTIFACT_MANIFEST, Store
from tune_calib.results.tables import read_table, write_file, write_results
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.ray.trainables import trainable
from tune_calib.tuning.work.execution import warn_of_other_machine
from tune_calib.tuning.work.provenance import Provenance

PORTABLE_SPEC = {"network": {"backbone": "small_cnn", "epochs": 1, "portable": True}}
NEW = ("processor", "instruction_set", "gpu")


def network_row(store: Store, out) -> dict:
    spec = small_spec().model_dump(mode="json")
    run = Provenance(out=str(out), store=str(store.root), git_revision=None).plain()
    drive(trainable("ce")({**spec, "run": run}))
    return read_table(out, "trials").to_pylist()[0]


def test_a_row_has_processor_instruction_set_threads_and_versions(trained, tmp_path):
    row = network_row(trained, tmp_path)
    assert {name: row[name] for name in NEW} == machine()
    assert row["processor"]
    assert row["instruction_set"] == torch.backends.cpu.get_cpu_capability()
    assert row["threads"] == 1
    assert {"torch", "numpy", "python", "scikit-learn", "pillow"} <= json.loads(
        row["versions"]
    ).keys()


def test_the_row_of_a_network_has_the_machine_that_trained_it(trained, tmp_path):
    """Not where its artifact was read later."""
    store = Store(tmp_path / "store")
    shutil.copytree(trained.root, store.root)
    manifest = store.folder("networks", small_spec().network_id) / ARTIFACT_MANIFEST
    elsewhere = {"processor": "another", "instruction_set": "NEON", "gpu": None}
    about = {**json.loads(manifest.read_text()), "machine": elsewhere, "threads": 2}
    manifest.write_bytes(seal(about))
    row = network_row(store, tmp_path / "out")
    assert {name: row[name] for name in NEW} == elsewhere
    assert row["threads"] == 2


@pytest.mark.parametrize("mixed", [False, True])
def test_rows_of_an_unknown_machine_are_read(trained, tmp_path, mixed):
    network_row(trained, tmp_path)
    (path,) = tmp_path.glob("trials/*.parquet")
    table = pq.read_table(path)
    old = table
    for name in NEW:
        place, nothing = table.schema.get_field_index(name), pa.nulls(table.num_rows, pa.string())
        old = old.set_column(place, name, nothing)
    write_file(tmp_path, "old" if mixed else path.stem, "trials", old)
    read = read_table(tmp_path, "trials")
    assert [set(read[name].to_pylist()) for name in NEW] == [
        {None, value} if mixed else {None} for value in machine().values()
    ]
    assert read_table(tmp_path, "trials", columns=["gpu"]).column_names == ["gpu"]
    warn_of_other_machine(tmp_path)


ROW = {"spec_hash": "a", "device": "cpu", "head_method": None, "threads": 1, "status": "done"}
HERE = {"processor": processor(), "instruction_set": torch.backends.cpu.get_cpu_capability()}


@pytest.mark.parametrize(
    ("row", "network", "told"),
    [
        ({}, {}, ""),
        ({"instruction_set": "AVX1"}, {}, "(AVX1), but this machine is"),
        ({"processor": "An EPYC"}, {}, "contains trials of An EPYC"),
        ({"processor": "An EPYC", "device": "cuda"}, {}, ""),
        ({"processor": "An EPYC"}, {"portable": True}, ""),
        ({"processor": None, "instruction_set": None}, {}, ""),
        ({"threads": 2}, {"threads": 2}, ""),
        ({"threads": 1, "head_method": "tst"}, {"threads": 2}, ""),
        ({"threads": None}, {}, ""),
    ],
)
def test_resuming_on_another_kind_of_machine_gives_one_warning(
    row, network, told, tmp_path, capsys
):
    content = {**ROW, **HERE, **row, "network": json.dumps(network)}
    write_results(tmp_path, "a", {"trials": [content]})
    warn_of_other_machine(tmp_path)
    message = capsys.readouterr().err
    assert told in message
    assert len(message.splitlines()) == bool(told)


def test_portable_is_part_of_the_identity_and_its_default_is_not():
    plain, portable = TrialSpec.build(network={}), TrialSpec.build(network={"portable": True})
    assert plain.network_id != portable.network_id
    assert "portable" not in plain.canonical_json()
    assert TrialSpec.build(**json.loads(portable.canonical_json())) == portable
    with pytest.raises(UserError, match="threads=1"):
        TrialSpec.build(network={"portable": True, "threads": 2})


def test_portable_trials_are_not_mixed_with_others():
    plain, portable = TrialSpec.build(network={}), TrialSpec.build(network={"portable": True})
    assert environment_of([plain, plain]) == {}
    assert environment_of([portable]) == PORTABLE
    with pytest.raises(UserError, match="must be the same in all trials"):
        environment_of([plain, portable])


@pytest.mark.parametrize("method", ["ce", "retrain"])
def test_a_portable_trial_needs_a_portable_process(method, trained, tmp_path):
    head = {"head": {"epochs": 1}} if method == "retrain" else {}
    run = Provenance(out=str(tmp_path), store=str(trained.root), git_revision=None).plain()
    with pytest.raises(UserError, match="ATEN_CPU_CAPABILITY=avx2"):
        trainable(method)({**PORTABLE_SPEC, **head, "run": run})
    require_environment(small_spec())


WEIGHTS = """
import hashlib, sys, torch
torch.set_num_threads(1)
from tune_calib.data.splits import load_development
from tune_calib.engine.network import NetworkTrainer
from tune_calib.spec.trial import TrialSpec
spec = TrialSpec.build(data={"train_fraction": 0.1}, network={"backbone": "small_cnn"})
trainer = NetworkTrainer(spec, load_development(spec.data, None), torch.device("cpu"))
next(trainer)
tensors = trainer.network.state_dict().values()
digest = hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors)).hexdigest()
print(torch.backends.cpu.get_cpu_capability(), digest)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512", reason="equal where there is AVX2 alone"
)
def test_the_environment_changes_the_numbers_of_a_wider_processor():
    found = {}
    for name, more in {"plain": {}, "portable": PORTABLE, "again": PORTABLE}.items():
        output = subprocess.run(
            [sys.executable, "-c", WEIGHTS],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        found[name] = output.stdout.split()
    assert found["plain"][0] == "AVX512"
    assert found["portable"][0] == "AVX2"
    assert found["portable"] == found["again"]
    assert found["plain"][1] != found["portable"][1]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_portable_reaches_every_trial_and_the_pictures(tmp_path):
    out = tmp_path / "out"
    done = cli("compare", "ce", "--portable", *QUICK[:2], "--out", out)
    assert done.returncode == 0, done.stderr
    rows = read_table(out, "trials").to_pylist()
    assert [row["instruction_set"] for row in rows] == ["AVX2"]
    assert all(json.loads(row["network"])["portable"] for row in rows)
    drawn = cli("pictures", out)
    assert drawn.returncode == 0, drawn.stderr
    assert "ce: logits of 500 samples" in drawn.stdout


READING = ["compare", "ce", "retrain", *QUICK]


@pytest.fixture
def read_only(tmp_path):
    """A store with all that ``READING`` needs, which cannot be written: for root by a mount."""
    root = tmp_path / "store"
    settings = {"data": {"dataset": "digits", "train_fraction": 0.25}}
    settings["network"] = {"epochs": 2, "augment": "none"}
    settings["head"] = {"epochs": 2, "augment": "none"}
    spec = expand(build_comparison(["ce", "retrain"]), ResolvedRequest(settings).with_recipe())[
        1
    ].spec
    splits = load_development(spec.data, None), load_test(spec.data, None)
    run = NetworkTraining(spec, Store(root), splits[0], CPU)
    while run.step() is not None:
        pass
    run.close()
    ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), Store(root), lambda: splits, CPU)
    if os.geteuid() != 0:
        subprocess.run(["chmod", "-R", "a-w", str(root)], check=True)
        yield root
        subprocess.run(["chmod", "-R", "u+w", str(root)], check=True)
        return
    bind = ["mount", "--bind", str(root), str(root)]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("root is stopped by a read-only mount alone, and cannot mount here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(root)], check=True)
        yield root
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


def test_a_complete_read_only_store_is_read(read_only, tmp_path):
    out = tmp_path / "out"
    done = here(*READING, "--out", out, "--store", read_only)
    assert done.returncode == 0, done.stderr
    assert read_table(out, "trials")["status"].to_pylist() == ["done", "done"]


@pytest.mark.parametrize(
    ("more", "lacks"),
    [
        (["--seeds", "2"], "networks/"),
        (["--set", "head.bn_mode=train"], "banks/"),
    ],
)
def test_a_read_only_store_is_refused_with_what_it_lacks(more, lacks, read_only, tmp_path, refusal):
    out = tmp_path / "out"
    message = refusal(*READING, *more, "--out", out, "--store", read_only)
    assert f"{read_only} cannot be written to, and lacks {lacks}" in message
    assert {path.name for path in out.iterdir()} == {".driver.lock"}


def test_a_search_of_networks_needs_a_store_that_it_can_write(read_only, tmp_path, refusal):
    out = tmp_path / "out"
    message = refusal("search", "ls", *QUICK[:2], "--out", out, "--store", read_only)
    assert f"{read_only} cannot be written to, and lacks" in message
    assert {path.name for path in out.iterdir()} == {".driver.lock"}


def test_a_network_that_is_whole_is_opened_while_another_holds_its_lock(trained):
    spec = small_spec()
    with trained.lock("network", spec.network_id):
        run = NetworkTraining(spec, trained, load_development(spec.data, None), CPU)
        assert run.step() is None
        run.close()


@pytest.mark.parametrize(("text", "is_limit"), [("4000000", True), ("max", False)])
def test_memory_is_that_of_the_container(text, is_limit, tmp_path, monkeypatch):
    of_machine = memory_size()
    (tmp_path / "memory.max").write_text(f"{text}\n")
    monkeypatch.setattr(machine_module, "MEMORY_LIMIT", tmp_path / "memory.max")
    assert memory_size() == (4_000_000 if is_limit else of_machine)
