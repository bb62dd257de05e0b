"""Mutated command lines: one line on stderr and exit code 2, or a command that would have begun."""

import contextlib
import random

import pytest

from tune_calib.cli import main
from tune_calib.tuning import ablate, search

LINES = [
    "ablate mac_cal --seeds 2 --epochs 3 --head-epochs 2 --set head.gamma=0.8 --controls --out OUT",
    "ablate fedlas --dataset digits --network-seeds 1 --head-seeds 1 --backbone resnet8 --out OUT",
    "ablate decoupling --set head.lr=0.01 --set data.train_fraction=0.5 --gpus 0 --out OUT",
    "compare ls fl ls+mac_cal+temperature --seeds 2 --set network.epochs=2 --out OUT --store OUT/s",
    "search mac_cal --trials 4 --sampler random --metric ece --guard 0.02 --seeds 1 --out OUT",
    "search ls --trials 4 --metric ece --metric nll --scheduler none --at-once 1 --out OUT",
    "ranks --published fedlas/table1 --metric ece --ranking average --where dataset=cifar10 --json",
    "significance --published fedlas/table1 --metric ece --test friedman",
    "list methods --json",
    "list spaces mac_cal",
    "status OUT",
    "report OUT --published maccal/table5",
    "resume OUT --trials 3 --retry crashed",
    "evaluate OUT --seeds 2",
]
JUNK = [
    "", " ", "-1", "0", "1e99", "nan", "inf", "null", "[]", "{", "=", "a=b", "head.gamma", "--",
    "--set", "--out", "../..", "/", "ä", "x" * 99, "head.gamma=nan", "head.gamma=[1",
    "data.dataset=1", "network.seed=3", "+", "ls+", "ls+ls", "--gpus=0.7", "--help",
    "fedlas/x", "\n", "'",
]  # fmt: skip


class WouldBegin(Exception):  # noqa: N818
    """Everything was right with a command; nothing is trained here."""


@contextlib.contextmanager
def no_ray(address, *_):
    raise WouldBegin
    yield


def mutated(words: list[str], chance: random.Random) -> list[str]:
    place = chance.randrange(len(words))
    before, word, after = words[:place], words[place], words[place + 1 :]
    cut = chance.randrange(len(word) + 1)
    return chance.choice(
        [
            [*before, *after],
            [*before, word, word, *after],
            [*before, chance.choice(JUNK), *after],
            [*before, word, chance.choice(JUNK), *after],
            [*before, word[:cut] + chance.choice("abz019-=._") + word[cut:], *after],
            [*before, word[:cut] + word[cut + 1 :], *after],
            [*after, *before, word],
        ]
    )


@pytest.mark.parametrize("seed", range(len(LINES)))
def test_a_mutated_command_line_is_refused_in_one_line_or_means_something(
    seed, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ablate, "ray_session", no_ray)
    monkeypatch.setattr(search, "ray_session", no_ray)
    chance, refused = random.Random(seed), 0
    for number in range(20):
        words = LINES[seed].replace("OUT", f"out{number}").split()
        for _ in range(chance.choice([1, 1, 2, 3])):
            words = mutated(words, chance) or words
        with pytest.raises((SystemExit, WouldBegin)) as ended:
            main(words)
        said = capsys.readouterr().err
        if ended.type is SystemExit and ended.value.code:
            assert ended.value.code == 2, (words, said)
            assert len(said.strip().splitlines()) == 1, (words, said)
            assert said.startswith("error: "), (words, said)
            refused += 1
    assert refused > 5
