"""Mutated folders of results, as anybody may send them: the right numbers or one line.

Parquet files are damaged, and a planted plug-in is named in many ways. Whatever a folder holds,
nothing of it is run, and nothing outside of it is written.
"""

import contextlib
import hashlib
import io
import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.load import load
from tests import fake_results, support
from tune_calib.cli import main
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.results.tables import read_table
from tune_calib.spec import plugins

COMMANDS = {
    "sweep": [
        ["status"], ["analyze", "ranks", "--json"], ["report"],
        ["analyze", "significance", "--baseline", "vanilla"],
    ],
    "search": [["status"], ["report"]],
    "entries": [["status"], ["report"]],
}  # fmt: skip
WHERE = [
    "HOME/out/planted.py", "out/planted.py", "HOME/out/planted", "/proc/self/cwd/out/planted.py",
    "/HOME/out/planted.py", "HOME/out/trials/../planted.py", "HOME/link.py", "planted_module",
    "planted_package.planted", "HOME/out", "HOME/out/planted.py:f", "os", "~/planted.py",
]  # fmt: skip
PLANTED = """
from dataclasses import replace
from pathlib import Path
from tune_calib.spec.methods import METHODS

Path({canary!r}).touch()
METHODS.register(replace(METHODS["fl"], name="planted"))
"""


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> Path:
    """The folders that are mutated."""
    folder = tmp_path_factory.mktemp("bases")
    fake_results.write(folder / "sweep", seeds=2)
    points = [{**fake_results.DEFAULTS, "head.lr": rate} for rate in (0.1, 0.05, 0.02)]
    fake_results.write_search(folder / "search", points, [0.07, 0.06, 0.04])
    fake_results.write(folder / "entries" / "one", seeds=1)
    shutil.copytree(folder / "search", folder / "entries" / "two")
    return folder


def name_plugins(folder: Path, chance: random.Random) -> bool:
    """Let the manifest name the planted plug-in, with its own hash."""
    home = folder.parent
    where = chance.choice(WHERE).replace("/HOME", str(home)).replace("HOME", str(home))
    try:
        content = plugins.read(where).content
    except Exception:
        content = plugins.read(str(home / "planted_module.py")).content
    name = chance.choice(["planted", "../planted", "a\nb", "planted\0", "-x", "\x1b[31m"])
    named = [{"name": name, "content": chance.choice([content, "../..", "x"]), "where": where}]
    for path in (*folder.rglob("sweep.json"), *folder.rglob("search.json")):
        manifest = json.loads(path.read_text())
        path.write_bytes(seal(manifest | {"plugins": named}))
    if chance.random() < 0.3:  # the rows name it too
        for path in folder.rglob("trials/*.parquet"):
            fake_results.set_cells(path, {"plugins": json.dumps({name: content})})
        for path in folder.rglob("sweep.json"):
            path.unlink()
    return True


def flip_a_bit(folder: Path, chance: random.Random) -> bool:
    """Flip a bit of a Parquet file."""
    path = chance.choice(sorted(folder.rglob("*.parquet")))
    raw = bytearray(path.read_bytes())
    place = chance.randrange(8 * len(raw))
    raw[place // 8] ^= 1 << place % 8
    path.write_bytes(raw)
    return True


def damage_parquet(folder: Path, chance: random.Random) -> bool:
    """Cut a Parquet file, fill a part of it, or put another file in its place."""
    files = sorted(folder.rglob("*.parquet"))
    path = chance.choice(files)
    raw = bytearray(path.read_bytes())
    start = chance.randrange(len(raw))
    length = chance.choice([1, 10, 100])
    filled = raw[:start] + bytes(chance.choices(range(256), k=length)) + raw[start + length :]
    other = chance.choice(files).read_bytes()
    path.write_bytes(chance.choice([raw[:start], filled, b"", other, raw + raw]))
    return False


MUTATIONS: list[Callable[[Path, random.Random], bool]] = [name_plugins, damage_parquet]
"""Each returns whether a row that is read after it must have the numbers that it had before."""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A current folder and a home with files that nobody may touch or run."""
    text = PLANTED.format(canary=str(tmp_path / "outside" / "canary"))
    (tmp_path / "outside" / "tables").mkdir(parents=True)
    (tmp_path / "outside" / "secret").write_text("secret")
    (tmp_path / "planted_package").mkdir()
    for name in ("planted_module", "link", "planted_package/__init__", "planted_package/planted"):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def carried_out(words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command; an error that is no user's is raised."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main(words)
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def numbers(out: Path) -> dict[str, dict[str, float]]:
    """The metrics of the rows that the analysis reads, by spec hash."""
    is_sweep = (out / "sweep.json").exists()
    rows = load(out).trials if is_sweep else read_table(out, "trials").to_pandas()
    names = [name for name in rows if name.startswith(("test/", "select/"))]
    cells = rows.set_index("spec_hash")[names].astype(float).to_dict("index")
    return {key: {n: v for n, v in row.items() if not math.isnan(v)} for key, row in cells.items()}


def state(home: Path) -> dict[str, str]:
    """Everything below a home but the folder of results."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(home.rglob("*"))
        if home / "out" not in (path, *path.parents) and "__pycache__" not in path.parts
    }


def attempt(number: int, bases: Path, home: Path, mutate) -> None:
    """Mutate a folder by one seed and carry the commands out that read it."""
    chance = random.Random(number)
    base = chance.choice(["sweep", "sweep", "search", "entries"])
    out = home / "out"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(bases / base, out)
    for name in ("planted.py", "planted"):
        shutil.copy(home / "planted_module.py", out / name)
    keeps_numbers = mutate(out, chance)
    state_before = state(home)
    case = (number, mutate.__name__)
    for words in COMMANDS[base]:
        line = [*words, str(out)]
        code, stdout, stderr = carried_out(line)
        lines = [text for text in stderr.splitlines() if not text.startswith("note: ")]
        assert code in (0, 1 if base == "entries" else 0, 2), (case, line, stderr)
        if code == 2:
            assert len(lines) == 1, (case, line, stderr)
            assert lines[0].startswith("error: "), (case, line, stderr)
        assert "\x1b" not in stdout + stderr, (case, line)
        assert state(home) == state_before, (case, line)
        assert plugins.in_use() == (), (case, line)
    if keeps_numbers and base != "entries":
        right = numbers(bases / base)
        try:
            left = numbers(out)
        except UserError:
            return
        assert all(right.get(key) == row for key, row in left.items()), case


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 14))]
)
def test_a_mutated_folder_is_right_or_one_line_and_runs_nothing(seed, bases, home):
    for number in range(10 * seed, 10 * seed + (10 if support.EVERY_CASE else 2)):
        attempt(number, bases, home, MUTATIONS[number % len(MUTATIONS)])


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]
)
def test_a_flipped_bit_never_gives_another_number(seed, bases, home):
    for number in range(10 * seed, 10 * seed + (10 if support.EVERY_CASE else 3)):
        attempt(number, bases, home, flip_a_bit)
