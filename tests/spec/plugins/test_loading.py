"""A plug-in is taken whole or not at all, and each version of it is another one."""

import json
from pathlib import Path

import pytest

from tests.support import CPU, drive, here, rows, run_of, sample
from tune_calib.data.cache import load_source
from tune_calib.data.splits import load_development
from tune_calib.engine.artifacts import NetworkTraining
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.registry import REGISTRIES
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.work.workers import NetworkWorker

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
GOOD = """
from dataclasses import replace
from tune_calib.spec.methods import METHODS

METHODS.register(replace(METHODS["fl"], name="mine"))
"""
METRIC = """
from tune_calib.spec.metrics import METRICS, Metric

METRICS.register(Metric("x", "X", "min", "score"))
"""
# The text of a plug-in, and what is said of it behind its path.
BROKEN = {
    "syntax": ("x = 1\ny = (\n", " line 2: SyntaxError: '(' was never closed"),
    "import": ("\nimport nothing_there\n", " line 2: ModuleNotFoundError"),
    "exit": ("raise SystemExit(3)\n", " line 1: SystemExit: 3"),
    "taken": (
        GOOD.replace('"mine"', '"ls"'),
        " line 5: ValueError: method 'ls' is already registered",
    ),
    "nothing": ("x = 1\n", ": it registers nothing"),
    "a text": (
        "from tune_calib.spec.ladder import LADDERS\nLADDERS.register('x')\n",
        " line 2: TypeError: a ladder must be a Ladder, got 'x'",
    ),
    "a metric": (METRIC, ": metric 'x' has no `compute` function"),
    "no text": ("# \udcff", " cannot be read as a text file"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def restored_plugins():
    """Unload the plug-ins of a test: they are registered for the whole process."""
    outer = plugins.in_use()
    yield
    plugins.use(outer)


def everything() -> dict[str, list[str]]:
    return {registry.kind: list(registry) for registry in REGISTRIES}


def written(path: Path, text: str = GOOD) -> str:
    path.write_bytes(text.encode(errors="surrogateescape"))
    return str(path)


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plug_in_is_one_line_and_leaves_nothing(case, tmp_path):
    text, message = BROKEN[case]
    records = everything()
    for _ in range(2):
        with pytest.raises(UserError) as caught:
            plugins.load(written(tmp_path / "lab.py", text))
        assert str(caught.value).startswith(f"plug-in {tmp_path / 'lab.py'}{message}")
        assert "\n" not in str(caught.value)
    assert everything() == records
    assert plugins.in_use() == ()


@pytest.mark.parametrize(
    "plugin", sample(["nothing.py", "nothing/here.py", "no.such.module", "tests.nothing"], 2)
)
def test_a_missing_plug_in_is_one_line_at_the_command(plugin, refusal):
    assert plugin.removesuffix(".py") in refusal("list", "methods", "--plugin", plugin)


def test_a_plug_in_named_twice_is_loaded_once_and_unloaded_after_the_command(tmp_path):
    options = ("--plugin", written(tmp_path / "lab.py")) * 2
    assert "mine" in here("list", "methods", *options).stdout
    assert "mine" not in METHODS
    assert "unknown method 'mine'" in here("list", "methods", "mine").stderr


def test_two_plug_ins_of_one_name_are_refused(tmp_path):
    plugins.load(written(tmp_path / "lab.py"))
    with pytest.raises(UserError, match="two plug-ins have the name lab"):
        plugins.load(written(tmp_path / "lab.py", GOOD + "# another"))


def test_records_registered_outside_a_plug_in_make_no_spec(tmp_path):
    path = written(tmp_path / "lab.py")
    exec(compile(Path(path).read_text(), path, "exec"), {"__name__": "lab"})
    try:
        with pytest.raises(UserError, match="registered outside a plug-in"):
            TrialSpec.build(network={"method": "mine"})
        plugins.load(path)  # which may register it once more
        assert TrialSpec.build(network={"method": "mine"}).network.plugin
    finally:
        METHODS.remove("outside")


@pytest.mark.parametrize("is_package", [True, False])
def test_a_module_is_known_by_all_of_its_package(is_package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / ("lab_pack/calib/methods.py" if is_package else "lab_module.py")
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_package:
        (tmp_path / "lab_pack/__init__.py").touch()
        (tmp_path / "lab_pack/calib/__init__.py").touch()
    name = "lab_pack.calib.methods" if is_package else "lab_module"
    written(path)
    contents = []
    for change in (path, tmp_path / "lab_pack/helper.py" if is_package else path):
        plugins.use([plugins.read(name)])
        assert METHODS.origin("mine") == plugins.read(name).content
        contents.append(plugins.read(name).content)
        change.write_text(path.read_text() + "# changed\n")
        assert plugins.read(name).content not in contents
    with pytest.raises(UserError, match="differs from the version with which the run began"):
        plugins.use([Plugin(name, contents[0][::-1], name)])


def test_plug_ins_of_installed_packages_are_always_loaded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    written(tmp_path / "lab_installed.py")
    metadata = tmp_path / "lab-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tune_calib.plugins]\nlab = lab_installed\n")
    assert "mine" in here("list", "methods").stdout
    ended = here("list", "methods", "mine", "--plugin", "lab_installed")
    assert ended.returncode == 0


def test_the_slot_of_a_plug_in_has_its_content_hash(tmp_path):
    plain = TrialSpec.build(network={}, head={"method": "tst"})
    plugins.load(
        str(EXAMPLES / "plugin_loss.py"),
        str(EXAMPLES / "plugin_head.py"),
        str(EXAMPLES / "plugin_dataset.py"),
        str(EXAMPLES / "plugin_backbone.py"),
    )
    assert TrialSpec.build(network={}, head={"method": "tst"}) == plain
    loss, head, dataset, backbone = (plugin.content for plugin in plugins.in_use())
    spec = TrialSpec.build(
        data={"dataset": "digits5"},
        network={"method": "poly", "backbone": "perceptron"},
        head={"method": "cosine"},
    )
    assert spec.data.plugin == dataset
    assert spec.network.plugin == f"{loss}+{backbone}"
    assert spec.head.plugin == head
    assert spec.plugins == {loss, head, dataset, backbone}
    stored = json.loads(spec.canonical_json())
    assert TrialSpec.build(**stored) == spec
    plugins.use(
        [
            *plugins.in_use()[1:],
            plugins.read(
                written(
                    tmp_path / "plugin_loss.py",
                    (EXAMPLES / "plugin_loss.py").read_text() + "# changed",
                )
            ),
        ]
    )
    with pytest.raises(UserError, match="network slot needs plug-in"):
        TrialSpec.build(**stored)


def two_versions(folder: Path) -> list[Plugin]:
    text = (EXAMPLES / "plugin_loss.py").read_text()
    for name, loss in (("a", "epsilon *"), ("b", "epsilon * 3 *")):
        (folder / name).mkdir()
        (folder / name / "lab.py").write_text(text.replace("epsilon *", loss))
    return [plugins.read(str(folder / name / "lab.py")) for name in "ab"]


def test_two_versions_never_share_a_network(tmp_path):
    store, networks = Store(tmp_path / "store"), []
    for plugin in two_versions(tmp_path):
        plugins.use([plugin])
        spec = TrialSpec.build(network={"method": "poly", "epochs": 1, "augment": "none"})
        run = NetworkTraining(spec, store, load_development(spec.data, None), CPU)
        networks.append((spec.network_id, run.step()["train/loss"]))
        assert run.step() is None
        run.close()
        assert store.holds("networks", spec.network_id)
    assert len({network for network, _ in networks}) == len({loss for _, loss in networks}) == 2


def test_two_versions_never_share_images_in_the_cache(tmp_path):
    text = (EXAMPLES / "plugin_dataset.py").read_text()
    (tmp_path / "images").write_text("the files of the data set")
    images = []
    for brightness in (255, 128):
        changed = text.replace("lambda root: ()", "lambda root: (root / 'images',)")
        path = written(tmp_path / "lab.py", changed.replace("255", str(brightness)))
        plugins.use([plugins.read(path)])
        info = DATASETS["digits5"]
        images += [load_source(info, tmp_path, tmp_path / "cache").train.images for _ in range(2)]
    assert [int(part[:].max()) for part in images] == [255, 255, 128, 128]
    assert len(list((tmp_path / "cache").glob("*.images"))) == 2


@pytest.mark.slow
def test_a_worker_serves_one_version_after_the_other(tmp_path, trained):
    """The same process, reset, as Ray reuses its actors; and none after them."""
    base = Provenance(**run_of(tmp_path / "out", trained)).plain()
    actor = None
    for index, plugin in enumerate([*two_versions(tmp_path), None]):
        plugins.use([plugin] if plugin else [])
        slots = {"network": {"method": "poly" if plugin else "ls", "epochs": 1, "augment": "none"}}
        spec = TrialSpec.build(**slots, data={"train_fraction": 0.2}).model_dump(mode="json")
        trial = {"spec": spec, "rung": index, "label": str(index)}
        loaded = [plugin.plain()] if plugin else []
        work = {"kind": "network", "name": f"n{index}", "trials": [trial]}
        config = {"run": {**base, "plugins": loaded}, "job": work}
        plugins.use([])
        if actor is None:
            actor = NetworkWorker(config)
        else:
            actor.reset(config)
        drive(actor)
    actor.cleanup()
    first, second, last = sorted(rows(tmp_path / "out"), key=lambda row: row["rung"])
    assert [set(json.loads(row["plugins"])) for row in (first, second)] == [{"lab"}] * 2
    assert first["plugins"] != second["plugins"]
    assert first["test/nll"] != second["test/nll"]
    assert last["plugins"] is None
