"""GPUs by name, and the measured rates from which a dry run estimates the hours on them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.text import format_count

_NVIDIA = "https://www.nvidia.com/content/dam/en-zz/Solutions"
_IMAGES = "https://images.nvidia.com"

RATES = Path(__file__).with_name("gpu_rates.json")
"""File of the package with measured rates."""

PRECISIONS = ("fp32", "tf32", "bf16")

# Each takes the place of a later one that was not measured, which is at least about as fast.
EXECUTIONS = {"eager": "eager", "graph": "captured", "compiled": "compiled"}


class Attained(NamedTuple):
    """Operations per second that training reaches, and the origin of the number for the user."""

    flops: float
    origin: str


@cache
def read_rates() -> dict[str, Any]:
    """Return the rates of networks and heads on one GPU, which ``tests/benchmarks/gpu.py`` wrote.

    Rates are images per second by execution and precision, None where they were not measured.
    """
    rates: dict[str, Any] = json.loads(RATES.read_text("utf-8"))
    return rates


def find_share(backbone: str, execution: str, precision: str) -> tuple[float, str]:
    """Return the share of its peak rate that the measured GPU reaches, and its origin.

    Shares depend on the network: small layers do not fill a GPU. A network without rates gets the
    geometric mean of those of the others, and a precision without rates the share of another one.
    """
    rates, shares = read_rates(), dict[str, float]()
    for measured_precision in (precision, *PRECISIONS):
        for name, network in rates["networks"].items():
            for measured in _up_to(execution):
                if rate := network["images_per_second"][measured][measured_precision]:
                    peak = 1e12 * GPUS[rates["gpu_model"]].teraflops[measured_precision]
                    shares[name] = rate * 1e9 * network["gflop"] / peak
        if shares:
            break
    else:
        raise UserError(f"{RATES} has no rate of a network: tests/benchmarks/gpu.py measures them")
    noun = f"{len(shares)} other networks"
    if backbone in shares:
        noun, shares = backbone, {backbone: shares[backbone]}
    share = geometric_mean(shares.values())
    origin = f"{share:.1%} of the peak rate, like {noun} on one {rates['gpu_model']}"
    return share, f"{origin} ({measured_precision}, at best {EXECUTIONS[execution]} steps)"


def find_head_step(heads: int, execution: str) -> tuple[float, str]:
    """Return the seconds of a step of a head batch on the measured GPU, and their origin.

    The step is that of the next larger batch that was measured, or in proportion to the largest.
    """
    rates, steps = read_rates(), {}
    for measured in _up_to(execution):
        for count, seconds in rates["head_step_s"].items():
            if seconds[measured] is not None:
                steps[int(count)] = seconds[measured]
    if not steps:
        raise UserError(f"{RATES} has no step of heads: tests/benchmarks/gpu.py measures them")
    nearest = min([count for count in steps if count >= heads], default=max(steps))
    step_s: float = steps[nearest] * max(1.0, heads / nearest)
    origin = f"{1000 * step_s:.3g} ms a step, like {format_count(nearest, 'head')} on one "
    return step_s, f"{origin}{rates['gpu_model']} (at best {EXECUTIONS[execution]} steps)"


def _up_to(execution: str) -> list[str]:
    names = list(EXECUTIONS)
    return names[: names.index(execution) + 1]


@dataclass(frozen=True)
class Gpu:
    """A GPU as its vendor describes it."""

    name: str
    teraflops: Mapping[str, float]  # peak rates of dense products, by fast precision
    devices: tuple[str, ...]  # prefixes of torch's names for it, which results have
    source: str  # page of the vendor; rates stated with sparsity are halved

    def attained(self, backbone: str, execution: str, precision: str) -> Attained:
        """Return what training of a network reaches; no precision is slower than fp32."""
        if precision not in self.teraflops:
            fast = " or ".join(self.teraflops)
            raise UserError(
                f"network.precision={precision} needs another `gpu_model` than {self.name}, which "
                f"only has {fast}"
            )
        attained = []
        for mode in self.teraflops if precision == "fp32" else [precision]:
            share, origin = find_share(backbone, execution, mode)
            attained.append(Attained(1e12 * self.teraflops[mode] * share, origin))
        return min(attained)

    def is_named(self, device: str | None) -> bool:
        """Return whether torch's name of a GPU is one of this GPU's names."""
        return device is not None and device.startswith(self.devices)


_A100 = f"{_NVIDIA}/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"

GPUS: Registry[Gpu] = Registry("GPU", "tune_calib.spec.gpus", Gpu)
for _name, _rates, _devices, _source in (
    ("A100-40GB", (19.5, 156, 312),
     ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "A100-SXM4-40GB"), _A100),
    ("A100-80GB", (19.5, 156, 312),
     ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB", "A100-SXM4-80GB"), _A100),
    ("A40", (37.4, 74.8, 149.7), ("NVIDIA A40",),
     f"{_IMAGES}/content/Solutions/data-center/a40/nvidia-a40-datasheet.pdf"),
    ("H100", (67, 494.5, 989.5), ("NVIDIA H100 80GB HBM3",),
     "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"),
    ("H200", (67, 494.5, 989.5), ("NVIDIA H200",),
     "https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446"),
    ("RTX-3090", (35.6, 35.6, 71), ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
     "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"),
    ("RTX-4090", (82.6, 82.6, 165.2), ("NVIDIA GeForce RTX 4090",),
     f"{_IMAGES}/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"),
    ("T4", (8.1,), ("Tesla T4", "NVIDIA T4"),
     f"{_NVIDIA}/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"),
    ("V100", (15.7,), ("Tesla V100-SXM2",),
     f"{_IMAGES}/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"),
):  # fmt: skip
    # Before Ampere, products are fast only in fp32.
    GPUS.register(Gpu(_name, dict(zip(PRECISIONS, _rates, strict=False)), _devices, _source))
