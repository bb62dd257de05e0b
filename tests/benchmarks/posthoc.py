"""Processor seconds of every post-hoc method on one core: fit with its judgement, and transform.

    python -m tests.benchmarks.posthoc [--samples 5000] [--classes 100]

As many samples are fitted on as are transformed. All settings that a comparison may name are timed,
and told as ratios to temperature scaling.
"""

import argparse
import time

import torch
from tabulate import tabulate

from tune_calib.spec.methods import METHODS

SETTINGS = [
    ("temperature", {}),
    ("temperature", {"fit": "grid_ece"}),
    ("temperature", {"fit": "grid_nll"}),
    ("vector", {}),
    ("matrix", {}),
    ("matrix", {"off_diagonal": 0.0, "intercept": 0.0}),
    ("dirichlet", {}),
    ("dirichlet", {"off_diagonal": 100.0, "intercept": 1.0}),
    ("svs", {}),
    ("svs", {"lambda_diagonal": 0.1}),
    ("sms", {}),
    ("sms", {"lambda_off_diagonal": 0.1}),
    ("ets", {}),
    ("ets", {"loss": "nll"}),
    ("isotonic", {}),
    ("irm", {}),
    ("histogram", {}),
    ("histogram", {"binning": "equal_width"}),
    ("histogram", {"bins": 15}),
    ("spline", {}),
]


def drawn(samples: int, classes: int, seed: int = 0):
    """Over-confident logits (N, C) and labels (N,)."""
    chance = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(samples, classes, generator=chance, dtype=torch.float64)
    labels = torch.multinomial(true.softmax(-1), 1, generator=chance).squeeze(1)
    noise = torch.randn(samples, classes, generator=chance, dtype=torch.float64)
    return (1.7 * (true + 0.3 * noise)).float(), labels


def timed(name: str, settings: dict, logits, labels):
    """Seconds of fit and of transform, and flags."""
    info = METHODS[name]
    method = info.implementation(info.params(**settings))
    half = len(labels) // 2
    started = time.process_time()
    method.fit(logits[None, :half], labels[:half])
    fitted = time.process_time()
    method.transform(logits[None, half:])
    flags = [flag for flag, is_so in method.flags().items() if bool(is_so)]
    return fitted - started, time.process_time() - fitted, flags


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logits, labels = drawn(2 * arguments.samples, arguments.classes)
    rows = []
    for name, settings in SETTINGS:
        if arguments.only and name not in arguments.only:
            continue
        fit, transform, flags = timed(name, settings, logits, labels)
        title = " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
        rows.append([title, fit, transform, fit / rows[0][1] if rows else 1.0, ", ".join(flags)])
    total = sum(row[1] + row[2] for row in rows)
    print(
        f"{arguments.samples} x {arguments.classes}, "
        f"processor seconds of one core; together {total:.1f}"
    )
    heads = ["method", "fit s", "transform s", "over the first", "flags"]
    print(tabulate(rows, heads, floatfmt=".3f"))


if __name__ == "__main__":
    main()
