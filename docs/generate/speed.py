"""Generate the table of rates on a GPU from the file that forecasts use."""

from collections.abc import Mapping, Sequence
from typing import Any

from docs.generate.page import table
from tune_calib.spec.describe import code
from tune_calib.spec.gpus import read_rates

_COLUMNS: dict[str, tuple[str, Sequence[str]]] = {
    "papers_loop": ("Papers' loop", ("installed",)),
    "floor": ("Bare captured step, TF32 / bf16", ("tf32", "bf16")),
    "eager": ("Eager, float32 / TF32 / bf16", ("fp32", "tf32", "bf16")),
    "graph": ("Captured, float32 / TF32 / bf16", ("fp32", "tf32", "bf16")),
    "compiled": ("Compiled, TF32 / bf16", ("tf32", "bf16")),
}


def gpu_rates() -> str:
    """Return the rates of networks and heads, with their source."""
    rates = read_rates()
    source = (
        f"Training images per second on one {rates['card']} (torch {rates['versions']['torch']}), "
        f"{rates['source']}. A dash is what was not measured. One large matrix product in bf16 "
        f"reached {_format(rates['product_tflops'])} TFLOP/s."
    )
    rows = []
    for name, network in rates["networks"].items():
        row = [f"{code(name)}, {network['batch_size']}", f"{network['gflop']:.3g}"]
        for kind, (_, precisions) in _COLUMNS.items():
            row.append(_join(network["images_per_second"][kind], precisions))
        row.append(_join(network["compile_s"], ("tf32", "bf16")))
        rows.append(row)
    titles = [title for title, _ in _COLUMNS.values()]
    header = ["Network, batch", "GFLOP per image", *titles, "Compilation in s, TF32 / bf16"]
    steps = []
    for count, seconds in rates["head_step_s"].items():
        milliseconds = [None if s is None else 1000 * s for s in seconds.values()]
        steps.append((count, *map(_format, milliseconds)))
    heads = table(("Heads (2048-512-100, batch 128)", "Eager step, ms", "Captured step, ms"), steps)
    return "\n\n".join([source, table(header, rows), heads])


def _join(values: Mapping[str, Any], names: Sequence[str]) -> str:
    cells = [_format(values[name]) for name in names]
    return "-" if set(cells) == {"-"} else " / ".join(cells)


def _format(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
