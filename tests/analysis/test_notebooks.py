"""The notebooks run as they are, and are stored with their outputs."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "analysis" / "notebooks"
PAPER = FOLDER.parents[1] / "docs/claims/day/maccal-table5/ladder-cifar10"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_notebooks_are_small_and_use_public_names_only():
    assert [path.stem for path in NOTEBOOKS] == ["ladder", "ranks", "search", "sensitivity"]
    for path in NOTEBOOKS:
        assert path.stat().st_size < 300_000
        assert not re.search(r"(from|import) (analysis|tune_calib\.)", path.read_text())
        cells = nbformat.read(path, as_version=4).cells
        outputs = [out for cell in cells for out in cell.get("outputs", [])]
        assert [out for out in outputs if "image/png" in out.get("data", {})]
        assert {out.output_type for out in outputs} <= {"stream", "display_data", "execute_result"}


@pytest.mark.slow
def test_notebooks_run_from_the_example_and_from_the_results_of_a_paper(tmp_path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # set by a command in the same process
    notebooks = [nbformat.read(path, as_version=4) for path in (*NOTEBOOKS, NOTEBOOKS[0])]
    own = 'EXAMPLE / "ladder"'
    assert any(own in cell.source for cell in notebooks[-1].cells if cell.cell_type == "code")
    for cell in notebooks[-1].cells:
        cell.source = cell.source.replace(own, f"Path({str(PAPER)!r})")
    # In one kernel, which takes seconds to start; each finds it without the names of the others.
    together = nbformat.v4.new_notebook(metadata=notebooks[0].metadata)
    for notebook in notebooks:
        together.cells += [nbformat.v4.new_code_cell("%reset -f"), *notebook.cells]
    # From a folder of its own: what they read comes with the package, not with the checkout.
    NotebookClient(together, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    for notebook in notebooks:
        outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
        assert [out for out in outputs if "image/png" in out.get("data", {})]
        assert [out for out in outputs if out.get("name") == "stderr"] == []
