"""GPUs by name, and the measured rates from which a dry run estimates the hours on them."""

from collections.abc import Mapping
from dataclasses import dataclass

from tune_calib.errors import UserError
from tune_calib.registry import Registry

_NVIDIA = "https://www.nvidia.com/content/dam/en-zz/Solutions"
_IMAGES = "https://images.nvidia.com"

SHARES = {"fp32": 0.41, "tf32": 0.14, "bf16": 0.06}
"""Share of a GPU's stated peak rate that training reaches by precision, for all GPUs and networks.
In fp32, the geometric mean of ResNet-18 (37 %) and fast_cnn (46 %) on an H100; in TF32, that of the
four networks in table 4 of MaC-Cal on an A40 (7 to 32 %); in bf16, that of fast_cnn on an H100. See
docs/pages/experiment-files.md#a-named-gpu."""

HEAD_STEP_S = 2e-3
"""Seconds per step of a head batch, measured on an H100 for 1 to 40 heads (2048-512-100): its
matrix products are too small to count."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as its vendor describes it."""

    name: str
    teraflops: Mapping[str, float]  # peak rates of dense products, by fast precision
    devices: tuple[str, ...]  # prefixes of torch's names for it, which results have
    source: str  # page of the vendor; rates stated with sparsity are halved

    def attained(self, precision: str) -> float:
        """Return the operations a second that training reaches; no mode is slower than float32."""
        if precision not in self.teraflops:
            fast = " or ".join(self.teraflops)
            raise UserError(
                f"network.precision={precision} needs another `gpu_model` than {self.name}, which "
                f"only has {fast}"
            )
        modes = self.teraflops if precision == "fp32" else [precision]
        return 1e12 * min(self.teraflops[mode] * SHARES[mode] for mode in modes)

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
    GPUS.register(
        Gpu(_name, dict(zip(("fp32", "tf32", "bf16"), _rates, strict=False)), _devices, _source)
    )
