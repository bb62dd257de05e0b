"""A folder of finished trials of every kind of classifier, on the network of ``small_spec``."""

import shutil

import pytest

from tests.classifiers import OF_DIGITS, TOLD, run_trials, spec_of
from tune_calib.engine.store import Store
from tune_calib.tuning.backend.trainables import HeadTrainable, NetworkTrainable


@pytest.fixture(scope="session")
def folder(trained, bank, tmp_path_factory):
    """Results and their store; finished trials by what they are."""
    root = tmp_path_factory.mktemp("exported")
    for kind in ("networks", "banks"):
        shutil.copytree(trained.root / kind, root / "store" / kind)
    heads = {told: spec_of(told, "temperature") for told in TOLD}
    heads["retrain alone"] = spec_of("retrain")
    networks = {f"network {name}": spec_of(posthoc=name) for name in OF_DIGITS}
    networks["network"] = spec_of()
    store = Store(root / "store")
    for name, spec in heads.items():
        run_trials(HeadTrainable, [spec], store, root, name.replace(" ", "-"))
    run_trials(NetworkTrainable, list(networks.values()), store, root, "networks")
    return root, {**heads, **networks}
