"""Processor seconds of the fit of every post-hoc method on one core, with its check for harm.

    python -m tests.benchmarks.posthoc [--samples 10000] [--classes 10 100 1000] [--only NAME ...]
                                       [--authors FOLDER]

The table has the seconds of temperature scaling, and ratios to it for all others. As in a
comparison of all methods, those with a matrix of parameters are left out above 100 classes, unless
they are named. With a folder of checkouts of the authors' repositories, our fits, without the check
for harm, are timed next to theirs instead.
"""

import argparse
import time
from pathlib import Path

import torch
from tabulate import tabulate

from tune_calib.spec.methods import METHODS, MOST_QUADRATIC, MethodInfo

FIRST = ("temperature", {})
TOP = {"top_versus_all": True}
VARIANTS = [
    ("temperature", {"fit": "grid_ece"}),
    ("temperature", TOP),
    ("vector", TOP),
    ("matrix", TOP),
    ("histogram", TOP),
    ("isotonic", TOP),
    ("ets", {"loss": "nll"}),
    ("matrix", {"off_diagonal": 0.0, "intercept": 0.0}),
]


def settings_of_all() -> list[tuple[str, dict]]:
    """The published settings of all maps, and others; those with a matrix are the last."""
    names = [name for name in METHODS if METHODS[name].kind == "posthoc"]
    pairs = [(name, {}) for name in names if name != FIRST[0]] + VARIANTS
    return [FIRST, *sorted(pairs, key=lambda pair: METHODS[pair[0]].is_quadratic)]


def applies_to(info: MethodInfo, classes: int) -> bool:
    """Whether a comparison of all methods fits it to so many classes."""
    is_too_large = info.is_quadratic and classes > MOST_QUADRATIC
    is_too_large |= info.implementation.reads_features  # of which these data have none
    return not is_too_large and info.classes in (None, classes)


def drawn(samples: int, classes: int, seed: int = 0):
    """Over-confident logits (N, C) and labels (N,)."""
    chance = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(samples, classes, generator=chance, dtype=torch.float64)
    labels = torch.multinomial(true.softmax(-1), 1, generator=chance).squeeze(1)
    noise = torch.randn(samples, classes, generator=chance, dtype=torch.float64)
    return (1.7 * (true + 0.3 * noise)).float(), labels


def seconds_of_fit(info: MethodInfo, settings: dict, logits, labels) -> float:
    method = info.implementation(info.params(**settings))
    started = time.process_time()
    method.fit(logits[None], labels)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--authors", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.authors:
        from tests.benchmarks.authors import compare_with_authors

        compare_with_authors(
            arguments.authors, arguments.classes, arguments.samples, arguments.only
        )
        return
    rows: dict[str, list[str]] = {}
    for classes in arguments.classes:
        logits, labels = drawn(arguments.samples, classes)
        of_first = 0.0
        for name, settings in settings_of_all():
            if arguments.only and name not in (FIRST[0], *arguments.only):
                continue
            title = " ".join([f"`{name}`", *(f"`{key}={settings[key]}`" for key in settings)])
            cells = rows.setdefault(title, [])
            if name not in arguments.only and not applies_to(METHODS[name], classes):
                cells.append("")
                continue
            seconds = seconds_of_fit(METHODS[name], settings, logits, labels)
            of_first = of_first or seconds
            is_first = (name, settings) == FIRST
            cells.append(f"{seconds:.2f} s" if is_first else f"{seconds / of_first:.1f}")
            print(f"{classes} classes: {title} {seconds:.2f} s", flush=True)
    heads = ["fit", *(f"{classes} classes" for classes in arguments.classes)]
    print(tabulate([[title, *rows[title]] for title in rows], heads, tablefmt="github"))


if __name__ == "__main__":
    main()
