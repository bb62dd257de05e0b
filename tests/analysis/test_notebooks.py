"""The notebooks run as they are, and are kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "analysis" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["ladder", "ranks", "sensitivity"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped_and_cells_are_short(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
            assert len(cell.source.splitlines()) <= 12


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_the_example_that_ships(path, tmp_path):
    _carried_out(nbformat.read(path, as_version=4), tmp_path)


def test_the_ladder_notebook_reads_the_results_of_a_paper(tmp_path):
    notebook = nbformat.read(FOLDER / "ladder.ipynb", as_version=4)
    own = 'EXAMPLE / "ladder"'
    assert any(own in cell.source for cell in notebook.cells if cell.cell_type == "code")
    for cell in notebook.cells:
        cell.source = cell.source.replace(own, 'EXAMPLE / "papers/maccal-table5/ladder-cifar10"')
    _carried_out(notebook, tmp_path)


def _carried_out(notebook, tmp_path):
    # From a folder of its own: what it reads comes with the package, not with the checkout.
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    images = [out for out in outputs if "image/png" in out.get("data", {})]
    assert images
    assert [out for out in outputs if out.get("name") == "stderr"] == []
