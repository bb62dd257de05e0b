"""A folder of finished trials of every kind of classifier, on the network of ``small_spec``."""

import shutil

import pytest

from tests import support
from tests.classifiers import OF_DIGITS, TOLD, run_trials, spec_of
from tests.support import small_spec
from tune_calib.files.store import Store
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker


@pytest.fixture(scope="session")
def folder(trained, bank, tmp_path_factory):
    """Results and their store; finished trials by what they are."""
    root = tmp_path_factory.mktemp("exported")
    for kind in ("networks", "banks"):
        shutil.copytree(trained.root / kind, root / "store" / kind)
    # All kinds only where the slow tests ask for them.
    told_of = TOLD if support.EVERY_CASE else ("mac_cal", "vtst")
    transforms = OF_DIGITS if support.EVERY_CASE else ("temperature",)
    methods = ("balcal", "tst_joint", "vtst_joint") if support.EVERY_CASE else ("balcal",)
    heads = {settings: spec_of(settings, "temperature") for settings in told_of}
    heads["retrain alone"] = spec_of("retrain")
    heads["retrain drifted"] = spec_of("retrain", "temperature", bn_mode="train")
    networks = {f"network {name}": spec_of(posthoc=name) for name in transforms}
    networks["network"] = spec_of()
    of_networks = {f"network of {name}": of_method(name) for name in methods}
    store = Store(root / "store")
    for name, spec in heads.items():
        run_trials(HeadWorker, [spec], store, root, name.replace(" ", "-"))
    run_trials(NetworkWorker, list(networks.values()), store, root, "networks")
    for name, spec in of_networks.items():
        run_trials(NetworkWorker, [spec], store, root, name.replace(" ", "-"))
    return root, {**heads, **networks, **of_networks}


def of_method(name):
    """A network whose method has a say in its logits."""
    network = {**small_spec().network.model_dump(mode="json"), "method": name}
    del network["params"]
    return TrialSpec.build(network=network, posthoc={"method": "temperature"})
