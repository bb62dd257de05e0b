"""Generate the page of a notebook: its cells with their stored outputs."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_NOTEBOOK = ROOT / "analysis/notebooks/ladder.ipynb"


def ladder() -> str:
    """Return the notebook that reads a ladder as Markdown, without its title."""
    parts: list[str] = []
    number = 0
    for cell in _cells():
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if _is_figure(output):
                number += 1
                parts.append(f"![Figure {number} of the notebook](../{_image_name(number)})")
            else:
                parts.append(f"```text\n{_text(output)}\n```")
    return "\n\n".join(parts[1:])


def pictures() -> Iterator[tuple[Path, bytes]]:
    """Yield the path of each figure of the notebook, and its bytes."""
    outputs = [output for cell in _cells() for output in cell.get("outputs", ())]
    for number, figure in enumerate(filter(_is_figure, outputs), start=1):
        path = ROOT / "docs/pages" / _image_name(number)
        yield path, base64.b64decode(figure["data"]["image/png"])


def _cells() -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(_NOTEBOOK.read_text("utf-8"))["cells"]
    return cells


def _is_figure(output: Mapping[str, Any]) -> bool:
    return "image/png" in output.get("data", {})


def _text(output: Mapping[str, Any]) -> str:
    lines = output["text"] if "text" in output else output["data"]["text/plain"]
    return "".join(lines).rstrip()


def _image_name(number: int) -> str:
    return f"images/gallery/ladder-{number}.png"
