"""Child seeds, and the environment under which x86 processors with AVX2 compute equal numbers.

One seed of the design drives every source of chance.
"""

import hashlib
import os

# torch, oneDNN and MKL each choose their instructions by the processor they find, and sums in wider
# registers have another order.
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
}
"""Read when torch is loaded."""


def child_seed(seed: int, purpose: str, index: int = 0) -> int:
    """Derive an independent seed.

    Args:
        seed: the seed of the design (an axis of the sweep), >= 0.
        purpose: what it is for, e.g. ``"init"``, ``"order"``, ``"mask"``.
        index: a counter within the purpose, e.g. the epoch.

    Returns:
        An integer in [0, 2**63), the same in every process and Python version.
    """
    # Not hash(), which differs from process to process for a text; and not seed + index, under
    # which neighbouring seeds would share streams.
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def is_portable_process() -> bool:
    """Return whether this process has the environment."""
    return all(os.environ.get(name) == value for name, value in PORTABLE.items())
