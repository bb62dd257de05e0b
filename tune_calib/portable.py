"""The environment under which x86 processors with AVX2 compute the same numbers."""

import os

# torch, oneDNN and MKL each choose their instructions by the processor they find, and sums in wider
# registers have another order.
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
}
"""Read when torch is loaded."""


def is_portable_process() -> bool:
    """Whether this process has the environment."""
    return all(os.environ.get(name) == value for name, value in PORTABLE.items())
