"""Bootstrap of every metric in one pass against a loop over the resamples, one torch thread.

The loop evaluates the drawn samples one draw after the other, on some draws; its time is scaled to
all of them. It has no intervals to compute, and not what chance adds to distances.

    python -m tests.benchmarks.bootstrap
"""

import time

import torch

from tune_calib.metrics.bootstrap import bootstrap, draw
from tune_calib.metrics.summary import evaluate

RESAMPLES = 1000
LOOPED = 20
SIZES = ((10_000, 10), (10_000, 100))


def case(samples: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (1, N, C) of an over-confident classifier, accuracy about .9, and labels."""
    chance = torch.Generator().manual_seed(0)
    true = torch.randn(samples, classes, generator=chance, dtype=torch.float64)
    true[torch.arange(samples), torch.randint(classes, (samples,), generator=chance)] += 7
    labels = torch.multinomial(true.softmax(-1), 1, generator=chance).flatten()
    return 1.5 * true[None], labels


def measured(samples: int, classes: int) -> tuple[float, float, float]:
    """Accuracy, seconds of the pass, and seconds of the loop for all resamples."""
    logits, labels = case(samples, classes)
    start = time.perf_counter()
    bootstrap(logits, labels, RESAMPLES)
    one_pass = time.perf_counter() - start
    places = torch.arange(samples)
    start = time.perf_counter()
    for counts in draw(torch.arange(samples), LOOPED, seed=0):
        indices = places.repeat_interleave(counts.long())
        evaluate(logits[:, indices], labels[indices])
    loop = (time.perf_counter() - start) / LOOPED * RESAMPLES
    return float((logits[0].argmax(-1) == labels).double().mean()), one_pass, loop


def main() -> None:
    """Print the seconds of both, and their ratio."""
    torch.set_num_threads(1)
    for samples, classes in SIZES:
        accuracy, one_pass, loop = measured(samples, classes)
        print(
            f"bootstrap of all metrics, {RESAMPLES} resamples of {samples} x {classes} logits "
            f"(accuracy {accuracy:.2f}): one pass {one_pass:.1f} s, loop {loop:.0f} s (from "
            f"{LOOPED} resamples), ratio {loop / one_pass:.0f}"
        )


if __name__ == "__main__":
    main()
