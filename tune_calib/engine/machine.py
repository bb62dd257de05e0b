"""What machine computed a number, and how x86 machines are made to compute the same ones.

A network that memorises noise amplifies one unit in the last place to about a point of accuracy,
and libraries sum in the order that suits the instruction set of the processor.
"""

import platform
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import torch

from tune_calib.determinism import PORTABLE, is_portable_process
from tune_calib.errors import UserError
from tune_calib.spec.trial import TrialSpec

# Without it torch refuses products on a GPU under deterministic algorithms.
_STRICT_CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def machine() -> dict[str, str | None]:
    """Return processor, instruction set in use and GPU (None without one), as in result rows."""
    return {
        "processor": processor(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@lru_cache
def processor() -> str:
    """Return model name of the processor; its architecture where the system does not tell."""
    # On Linux platform.processor() knows the architecture at most.
    about = Path("/proc/cpuinfo")
    for line in about.read_text().splitlines() if about.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def environment_of(specs: Iterable[TrialSpec]) -> dict[str, str]:
    """Return the variables that the processes of some trials need before they load torch.

    Raises:
        UserError: some of them are portable and some are not.
    """
    # Actors are reused: one process, with one environment, computes trials of many specs.
    networks = [spec.network for spec in specs]
    kinds = {network.portable for network in networks}
    if len(kinds) > 1:
        raise UserError("network.portable holds for all trials of a run; set it for all or none")
    is_strict = any(network.deterministic for network in networks)
    return {**(PORTABLE if kinds == {True} else {}), **(_STRICT_CUBLAS if is_strict else {})}


def require_environment(spec: TrialSpec) -> None:
    """Refuse to compute a portable trial in a process that is not set up for it."""
    if not spec.network.portable:
        return
    # The variables alone prove nothing: they are read when torch is loaded, perhaps before they
    # were set, and the processor may lack AVX2.
    if not is_portable_process() or torch.backends.cpu.get_cpu_capability() != "AVX2":
        wanted = " ".join(f"{name}={value}" for name, value in PORTABLE.items())
        raise UserError(
            f"network.portable needs {wanted} in the environment before torch is loaded, and an "
            "x86 processor with AVX2"
        )
