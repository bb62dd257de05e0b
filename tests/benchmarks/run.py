"""Benchmarks of the harness: ratios measured in one run on one machine (``make bench``).

python -m tests.benchmarks.run [PART ...]
"""

import sys

import torch

from tests.benchmarks import (
    bank,
    floor,
    gpu,
    growth,
    heads,
    networks,
    noop,
    overhead,
    precision,
    published,
    quality,
    rates,
    ray_trials,
    search,
    shift,
    start,
    studies,
    threads,
)

PARTS = {
    "published": published.main,
    "networks": networks.main,
    "precision": precision.main,
    "gpu": gpu.main,
    "floor": floor.main,
    "heads": heads.main,
    "ray": ray_trials.main,
    "bank": bank.main,
    "shift": shift.main,
    "overhead": overhead.main,
    "search": search.main,
    "quality": quality.main,
    "rates": rates.main,
    "noop": noop.main,
    "growth": growth.main,
    "studies": studies.main,
    "threads": threads.main,
    "start": start.main,
}


def main() -> None:
    """Run the parts that are named, or all of them."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or PARTS:
        print(f"\n== {name} ==", flush=True)
        PARTS[name]()


if __name__ == "__main__":
    main()
