"""The hash of a plug-in covers the modules behind its numbers."""

import hashlib
import os
import sys

import pytest

from tests.support import sample
from tune_calib.errors import RefusedError, UserError
from tune_calib.spec import plugins
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

TEXT = """
from dataclasses import replace
from tune_calib.spec.methods import METHODS

{imports}
METHODS.register(replace(METHODS["fl"], name="mine"))
"""


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """Unload plug-ins and the modules that they imported, whose names the next test uses again."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = set(sys.modules)
    with plugins.restored():
        yield
    for name in set(sys.modules) - modules:
        if not name.startswith(("tune_calib", "torch")):
            del sys.modules[name]


def write(folder, imports="", **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("/init", "/__init__")
        path = path.with_suffix(".json" if name == "weights" else ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folder.mkdir(exist_ok=True)
    (folder / "plug.py").write_text(TEXT.format(imports=imports))
    return folder / "plug.py"


def load(path):
    """Load a plug-in alone, as a command does; return it as it is registered."""
    plugins.use([plugins.read(str(path))])
    return plugins.in_use()[0]


def test_a_plug_in_without_modules_keeps_the_hash_of_its_text(tmp_path):
    path = write(tmp_path, "import json, torch")
    raw = path.read_bytes()
    text = hashlib.sha256(f".py {len(raw)}\n".encode() + raw).hexdigest()[:16]
    assert (load(path).content, load(path).parts) == (text, {})


HELPERS = {
    "module": ("import helper", {"helper": "X = 1"}, "helper"),
    "of a module": ("import helper", {"helper": "import deep", "deep": "X = 1"}, "deep"),
    "of a package": (
        "from package import sub",
        {"package__init": "", "package__sub": "from . import low", "package__low": "X = 1"},
        "package__low",
    ),
    "of a namespace": ("import space.sub", {"space__sub": "X = 1"}, "space__sub"),
}


@pytest.mark.parametrize("kind", sample(HELPERS, 2))
def test_a_changed_module_gives_other_trials(kind, tmp_path):
    imports, files, changed = HELPERS[kind]
    path = write(tmp_path, imports, **files)
    specs = []
    # Back to the first text at the end: of equal size, and in the same second.
    for text in (files[changed], files[changed].replace("1", "2"), files[changed]):
        write(tmp_path, imports, **{**files, changed: text})
        load(path)
        specs.append(TrialSpec.build(network={"method": "mine", "epochs": 1}))
    assert specs[0].hash == specs[2].hash != specs[1].hash
    assert specs[0].network_id == specs[2].network_id != specs[1].network_id
    assert load(path) is load(path)  # unchanged, it is run once
    assert METHODS.origin("mine") == specs[0].network.plugin


def test_a_module_that_the_user_imported_before_is_read_again(tmp_path):
    path = write(tmp_path, "import helper; assert helper.X == 20", helper="X = 1")
    sys.path.insert(0, str(tmp_path))
    __import__("helper")
    # Of another size, since Python recognises its bytecode by second and size.
    (tmp_path / "helper.py").write_text("X = 20")
    assert load(path).parts.keys() == {"helper"}


def test_the_bytecode_of_an_earlier_module_is_not_mistaken_for_that_of_a_new_one(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for text in ("X = 1", "X = 2"):
        path = write(
            tmp_path, f"import helper; assert helper.{text.replace('=', '==')}", helper=text
        )
        os.utime(tmp_path / "helper.py", (1, 1))  # as in one second, with as many characters
        load(path)


def test_two_plug_ins_import_their_own_modules_of_one_name_but_not_at_once(tmp_path):
    first = load(write(tmp_path / "a", "import helper; assert helper.X == 1", helper="X = 1"))
    other = write(tmp_path / "b", "import helper; assert helper.X == 2", helper="X = 2")
    assert load(other).parts != first.parts
    renamed = (tmp_path / "a" / "plug.py").rename(tmp_path / "a" / "first.py")
    renamed.write_text(renamed.read_text().replace('"mine"', '"yours"'))
    with pytest.raises(UserError, match="different modules with the name helper; rename one"):
        plugins.use([plugins.read(str(other)), plugins.read(str(renamed))])


def test_a_module_that_is_imported_during_a_trial_counts_and_is_found(tmp_path):
    path = write(tmp_path, "def late():\n    import helper\n    return helper.X", helper="X = 1")
    plugin = load(path)
    assert plugin.parts.keys() == {"helper"}
    assert BACKBONES["plug.late"].build.keywords["function"]() == 1
    plugins.use([])
    assert str(tmp_path) not in sys.path


def test_a_module_that_changes_before_a_worker_reads_it_is_refused(tmp_path):
    # A text of its own, since this process must not have run the plug-in before.
    sent = plugins.read(str(write(tmp_path, "import helper", helper="X = 'sent'")))
    (tmp_path / "helper.py").write_text("X = 2")
    with pytest.raises(RefusedError, match="differs from the version"):
        plugins.use([sent])
    (tmp_path / "helper.py").write_text("X = 'sent'")
    plugins.use([sent])
    assert plugins.in_use() == (sent,)


@pytest.mark.parametrize("imports", ["import random", "import torch", "from tune_calib import api"])
def test_modules_of_python_packages_and_the_program_are_no_parts(imports, tmp_path):
    assert load(write(tmp_path, imports, random="")).parts == {}
