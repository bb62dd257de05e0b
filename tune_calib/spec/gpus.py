"""GPUs by name, and the measured rates from which a dry run estimates the hours on them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tune_calib.errors import UserError
from tune_calib.registry import Registry

_NVIDIA = "https://www.nvidia.com/content/dam/en-zz/Solutions"
_IMAGES = "https://images.nvidia.com"

RATES = Path(__file__).with_name("gpu_rates.json")
RATES_SIZE = 32  # width of the images on which networks were measured

PRECISIONS = ("fp32", "tf32", "bf16")
_WORDS = {"eager": "eager", "graph": "captured"}
_FASTEST = ("graph", "eager")  # eager steps stand for captured ones that were not measured


@cache
def read_rates() -> dict[str, Any]:
    """Return the rates of networks and heads on one GPU, which ``tests/benchmarks/gpu.py`` wrote.

    Rates are images per second by execution and precision, None where they were not measured.
    """
    rates: dict[str, Any] = json.loads(RATES.read_text("utf-8"))
    return rates


Rate = tuple[float, str]
"""Measured seconds, and their origin for the user."""


def find_head_step(heads: int, is_captured: bool) -> Rate | None:
    """Return the time of a step of the next larger head batch that was measured."""
    for name in _FASTEST if is_captured else ("eager",):
        measured = read_rates()["head_step_s"].items()
        steps = {int(count): s[name] for count, s in measured if s[name] is not None}
        if steps:
            nearest = min([count for count in steps if count >= heads], default=max(steps))
            step_s = steps[nearest] * max(1.0, heads / nearest)
            return step_s, f"{1000 * step_s:.3g} ms a step, {_WORDS[name]}"
    return None


@dataclass(frozen=True)
class Gpu:
    """A GPU as its vendor describes it."""

    name: str
    teraflops: Mapping[str, float]  # peak rates of dense products, by fast precision
    devices: tuple[str, ...]  # prefixes of torch's names for it, which results have
    source: str  # page of the vendor; rates stated with sparsity are halved

    def find_image_s(self, backbone: str, precision: str, is_captured: bool) -> Rate | None:
        """Return the seconds of training an image, in proportion to the peak rates of the GPUs."""
        if precision not in self.teraflops:
            raise UserError(
                f"network.precision={precision} needs another `gpu_model` than {self.name}"
            )
        rates = read_rates()
        measured_gpu = GPUS[rates["gpu_model"]]
        share = self.teraflops[precision] / measured_gpu.teraflops[precision]
        for name in _FASTEST if is_captured else ("eager",):
            measured = rates["networks"].get(backbone, {}).get("images_per_second", {}).get(name)
            if measured and measured[precision] is not None:
                origin = f"{share:.3g} times the rate of one {measured_gpu.name}"
                image_s = 1 / (share * measured[precision])
                return image_s, f"{origin} ({precision}, {_WORDS[name]})"
        return None

    def is_named(self, device: str | None) -> bool:
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
