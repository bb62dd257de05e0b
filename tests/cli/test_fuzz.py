"""Mutated command lines and experiment files: one line and exit code 2, or right, 500 a run.

Paths, encodings, numbers out of all range, and result folders in every state of damage are mutated
too. Nothing is trained: a command that would start Ray was right.
"""

import contextlib
import io
import random
import shutil
import sys
from pathlib import Path

import pytest

from tests import fake_results, support
from tests.support import DAMAGE, damaged
from tune_calib.cli import main
from tune_calib.tuning import plan as driver

LINES = [
    "ablate mac_cal --seeds 2 --epochs 3 --head-epochs 2 --set head.gamma=0.8 --controls --out OUT",
    "ablate fedlas --dataset digits --network-seeds 1 --head-seeds 1 --backbone resnet8 --out OUT",
    "ablate decoupling --set head.lr=0.01 --set data.train_fraction=0.5 --gpus 0 --out OUT",
    "compare ls fl ls+mac_cal+temperature --seeds 2 --set network.epochs=2 --out OUT --store OUT/s",
    "search mac_cal --trials 4 --sampler random --metric ece --guard 0.02 --seeds 1 --out OUT",
    "search ls --trials 4 --metric ece --metric nll --at-once 1 --out OUT",
    "analyze ranks --published fedlas/table1 --ranking average --where dataset=cifar10 --json",
    "analyze significance --published fedlas/table1 --metric ece --test friedman --figure OUT",
    "list methods --json",
    "list spaces mac_cal",
    "run FILE --dry-run",
    "status DIR",
    "report DIR --published maccal/table5",
    "report DIR --test wilcoxon",
    "report DIR --regime",
    "analyze averages DIR --metric accuracy,ece --json",
    "analyze ranks DIR --metric ece",
    "analyze significance DIR --test t --baseline vanilla --metric ece",
    "report DIR --pictures --store OUT",
    "resume DIR --trials 3 --retry crashed",
    "evaluate DIR --seeds 2",
    "run FILE",
]
SWEEP = """
out: OUT
seeds: 2
set: {network: {epochs: 1, augment: none}, head: {epochs: 1}}
entries:
  steps: {ladder: mac_cal, controls: true, seeds: {networks: 1, heads: 5}}
  rivals: {methods: [ce, ls+temperature], resources: {gpus: 0}}
  tuned: {methods: [mac_cal], search: {trials: 4, sampler: random, guard: 0.02}}
"""
JUNK = [
    "", " ", "-1", "0", "1e99", "nan", "inf", "null", "[]", "{", "=", "a=b", "head.gamma", "--",
    "--set", "--out", "../..", "/proc", "ä", "x" * 99, "head.gamma=nan", "head.gamma=[1",
    "data.dataset=1", "network.seed=3", "+", "ls+", "ls+ls", "--gpus=0.7", "--help",
    "fedlas/x", "\n", "'", "true", "head.lr=true", "network.epochs=", "--json", "--markdown",
]  # fmt: skip
PATHS = [
    "FILE", "FILE/below", "x" * 300, "y/" * 3000, "a\0b", "\ud800", "\udcff", "ünï ☃",
    "DIR/trials", ".", "..", "~", "-", "a b", "://", "s3://", "file://", "nosuch://x/y",
    "s3://u:p@bucket/x", "DIR/sweep.json",
]  # fmt: skip
NUMBERS = [
    "-1", "0", "0.5", "-0.0", "1e-320", "1e308", "1e999", "-1e999", "nan", "9" * 12, "0x10",
    "1_000", "\u0661", "1.0000000000000002", "--1", "1/3", "1/0",
]  # fmt: skip
ENCODINGS = ["utf-8", "ascii", "latin-1", "utf-16", "cp037"]


EXAMPLE = Path("analysis/example").resolve()


class WouldBegin(BaseException):
    """Everything was right with a command; nothing is trained here."""


@contextlib.contextmanager
def no_ray(*_, **__):
    raise WouldBegin
    yield


def mutated(words: list[str], chance: random.Random) -> list[str]:
    """A command line with a word changed, to a path or a number among others."""
    place = chance.randrange(len(words))
    head, word, after = words[:place], words[place], words[place + 1 :]
    cut = chance.randrange(len(word) + 1)
    return chance.choice(
        [
            [*head, *after],
            [*head, word, word, *after],
            [*head, chance.choice(JUNK), *after],
            [*head, word, chance.choice(JUNK), *after],
            [*head, chance.choice(PATHS), *after],
            [*head, chance.choice(NUMBERS), *after],
            [*head, word[:cut] + chance.choice("abz019-=._") + word[cut:], *after],
            [*head, word[:cut] + word[cut + 1 :], *after],
            [*after, *head, word],
        ]
    )


def mutated_file(text: str, chance: random.Random) -> bytes:
    """An experiment file with a letter or a value changed, in some encoding."""
    where, words = chance.randrange(len(text)), text.replace(",", " ").split()
    value = chance.choice([*JUNK, *NUMBERS, *(f'"{path}"' for path in PATHS[:8])])
    changed = chance.choice(
        [
            text[:where] + chance.choice("abz09:{}[]-# \n\t\"'&*!%|>\0é") + text[where + 1 :],
            text.replace(chance.choice(words), value, 1),
            text.replace(chance.choice(["OUT", "2", "4", "none", "0.02", "true"]), value, 1),
        ]
    )
    return changed.encode(chance.choice(ENCODINGS), errors="backslashreplace")


def folder(out: Path, chance: random.Random) -> None:
    """A folder of results, whole or damaged in one file."""
    if chance.random() < 0.3:
        shutil.copytree(EXAMPLE / "search", out)
    else:
        fake_results.write(out, seeds=2)
    files = sorted(path for path in out.rglob("*") if path.is_file())
    victim, how = chance.choice(files), chance.choice([*DAMAGE, "none"])
    if how != "none" and not (how == "another type" and victim.suffix != ".json"):
        damaged(victim, how)


def carried_out(words: list[str], chance: random.Random, monkeypatch) -> tuple[int, str]:
    """Exit code, and what a command said on stderr; 0 if it would begin."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=chance.choice(ENCODINGS))
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    try:
        main(words)
    except WouldBegin:
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        monkeypatch.undo()
    err.flush()
    return code, err.buffer.getvalue().decode()


def attempt(number: int, home: Path, monkeypatch) -> tuple[list[str], int, str]:
    """Mutate everything by one seed and carry it out: the command, its exit code, its stderr."""
    chance = random.Random(number)
    home.mkdir()
    folder(home / "dir", chance)
    (home / "file.yaml").write_bytes(mutated_file(SWEEP, chance))
    words = chance.choice(LINES).split()
    for _ in range(chance.choice([0, 1, 1, 2])):
        words = mutated(words, chance) or words
    for name, path in {"OUT": "out", "DIR": "dir", "FILE": "file.yaml"}.items():
        words = [word.replace(name, path) for word in words]
    monkeypatch.chdir(home)
    monkeypatch.setattr(driver, "open_executor", no_ray)
    return words, *carried_out(words, chance, monkeypatch)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))]
)
def test_mutated_commands_are_refused_in_one_line_or_right(seed, tmp_path, monkeypatch):
    refused = 0
    count = 50 if support.EVERY_CASE else 20
    for number in range(50 * seed, 50 * seed + count):
        words, code, message = attempt(number, tmp_path / str(number), monkeypatch)
        if code:
            assert code == 2, (words, message)
            assert len(message.strip().splitlines()) == 1, (words, message)
            assert message.startswith("error: "), (words, message)
            refused += 1
    assert refused > count / 4
