"""Child seeds, and the environment in which all x86 processors with AVX2 get the same numbers."""

import hashlib
import os

# torch, oneDNN and MKL choose instructions for the processor they run on, and wider registers sum
# in another order.
PORTABLE = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"}
"""Environment variables that are read when torch is loaded."""


def child_seed(seed: int, purpose: str, index: int = 0) -> int:
    """Derive an independent seed.

    Args:
        seed: the seed of the design (an axis of the run), >= 0.
        purpose: what it is for, e.g. ``"init"``, ``"order"``, ``"mask"``.
        index: a counter within the purpose, e.g. the epoch.

    Returns:
        An integer in [0, 2**63), the same in every process and Python version.
    """
    # Not hash(), which for strings differs between processes, and not seed + index, with which
    # neighbouring seeds would share streams.
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def is_portable_process() -> bool:
    """Return whether this process has that environment."""
    return all(os.environ.get(name) == value for name, value in PORTABLE.items())
