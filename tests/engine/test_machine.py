"""Rows say where they were computed; portable trials; a run that goes on elsewhere."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from tests.support import drive, small_spec
from tune_calib.determinism import PORTABLE
from tune_calib.engine import machine as machine_module
from tune_calib.engine.machine import environment_of, machine, memory_size, require_environment
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.files.store import ARTIFACT_MANIFEST, Store
from tune_calib.results.tables import read_table
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.ray.trainables import trainable

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


@pytest.mark.parametrize(("text", "is_limit"), [("4000000", True), ("max", False)])
def test_memory_is_that_of_the_container(text, is_limit, tmp_path, monkeypatch):
    of_machine = memory_size()
    (tmp_path / "memory.max").write_text(f"{text}\n")
    monkeypatch.setattr(machine_module, "MEMORY_LIMIT", tmp_path / "memory.max")
    assert memory_size() == (4_000_000 if is_limit else of_machine)
