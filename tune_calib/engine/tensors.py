"""Named tensors: artifacts of one safetensors file, names with a prefix, seeded generators."""

from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tune_calib.engine.store import opened, write_folder
from tune_calib.paths import AnyPath

TENSORS = "tensors.safetensors"


def write_tensors(folder: AnyPath, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write an artifact of one safetensors file."""
    # safetensors refuses other strides, which weights in channels_last have.
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_folder(folder, lambda path: save_file(content, path / TENSORS), about)


def read_tensors(folder: AnyPath) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read an artifact of one safetensors file and its manifest, checked as ``opened`` does."""
    files, manifest = opened(folder)
    return load_file(files / TENSORS), manifest


def nest(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put a prefix and a dot before every name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def unnest(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors under a prefix back out."""
    start = f"{prefix}."
    return {k.removeprefix(start): tensor for k, tensor in tensors.items() if k.startswith(start)}


def generator(seed: int) -> torch.Generator:
    """Return a CPU generator, so that what is drawn does not depend on the device."""
    return torch.Generator().manual_seed(seed)
