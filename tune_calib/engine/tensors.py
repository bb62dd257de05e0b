"""Artifacts of one safetensors file, and named tensors."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tune_calib.files.paths import AnyPath
from tune_calib.files.store import opened, write_folder

TENSORS = "tensors.safetensors"


def write_tensors(folder: AnyPath, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    # safetensors needs contiguous tensors, and weights in channels_last are not.
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_folder(folder, lambda path: save_tensors(content, path / TENSORS), facts)


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file that others may read as the umask allows."""
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path)  # by way of a private temporary file
    path.chmod(mode)


def read_tensors(folder: AnyPath) -> tuple[dict[str, Tensor], dict[str, Any]]:
    files, manifest = opened(folder)
    return load_file(files / TENSORS), manifest


def nest(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def unnest(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {k.removeprefix(start): tensor for k, tensor in tensors.items() if k.startswith(start)}


def generator(seed: int) -> torch.Generator:
    """Return a CPU generator, so that random numbers do not depend on the device."""
    return torch.Generator().manual_seed(seed)
