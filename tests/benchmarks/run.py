"""Benchmarks of the harness: ratios measured in one run on one machine (``make bench``).

python -m tests.benchmarks.run [PART ...]
"""

import sys

import torch

from tests.benchmarks import floor, gpu, networks, overhead, search, shift, start

PARTS = {
    "networks": networks.main,
    "gpu": gpu.main,
    "floor": floor.main,
    "shift": shift.main,
    "overhead": overhead.main,
    "search": search.main,
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
