"""Test that the example files of the documentation do what their page says."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import tune_calib
from analysis import style
from analysis.figure import LADDER_FIGURES
from analysis.ladder.results import LadderResults
from analysis.load import load
from tests.docs.test_pages import blocks, commands, page
from tests.drawing import figures
from tests.support import here, shared_ray
from tune_calib.spec import plugins
from tune_calib.spec.reproduction import REPRODUCTIONS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "analysis" / "example"
# All in one process of its own: what they register must not reach other tests.
TOGETHER = """
import json, sys
from pathlib import Path
from tests.support import drive, run_of
from tune_calib.spec import plugins
from tune_calib.files.store import (Store)
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.ladder import expand
from tune_calib.spec.ladder import LADDERS
from tune_calib.results.tables import read_table
from tune_calib.tuning.ray.trainables import trainable

names = ("ladder", "metric", "dataset", "backbone")
plugins.load(*(f"docs/examples/plugin_{name}.py" for name in names))

asked = {"data": {"dataset": "digits5"}, "network": {"backbone": "perceptron", "epochs": 2}}
trials = expand(LADDERS["smoothing"], ResolvedRequest(asked, controls=True).with_recipe())
out = Path(sys.argv[1])
drive(trainable("ce")({**asked, "run": run_of(out, Store(out / "store"))}))
(row,) = read_table(out, "trials").to_pylist()
print(json.dumps({"labels": [t.label for t in trials], "row": row}, default=str))
"""


@pytest.mark.slow
def test_ladder_metric_data_set_and_backbone_work_together(tmp_path):
    command = [sys.executable, "-c", TOGETHER, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    measured = json.loads(ended.stdout.splitlines()[-1])
    assert measured["labels"] == ["ce", "+ label smoothing", "+ temperature", "temperature alone"]
    row = measured["row"]
    assert (row["dataset"], row["backbone"]) == ("digits5", "perceptron")
    assert row["status"] == "done"
    assert row["test/accuracy"] > 0.5
    # The last of the cumulated gaps is that of the whole split.
    assert abs(row["test/o_ece"] - row["test/u_ece"]) - 1e-9 <= row["test/ks"] < 1


def test_a_figure_is_drawn(tmp_path):
    plugins_before = plugins.in_use()
    plugins.load(str(ROOT / "docs/examples/plugin_figure.py"))
    try:
        figure, results = LADDER_FIGURES["select_test"], LadderResults(load(EXAMPLE / "compare"))
        style.theme()
        drawing = figure.draw(results)
        dots = sum(len(line.get_xdata()) for line in drawing.axes[0].get_lines()[:-1])
        assert dots == len(results.run.trials)
        with figures("png"):
            style.save(drawing, tmp_path, figure.name)
    finally:
        plugins.use(plugins_before)
    assert (tmp_path / "select_test.png").stat().st_size > 10_000
    assert "select_test" not in LADDER_FIGURES


def test_equal_spaces_share_every_setting_of_the_optimiser():
    command = ["list", "spaces", "--json", "--plugin", ROOT / "docs/examples/equal_spaces.py"]
    spaces = {}
    for space in json.loads(here(*command).stdout):
        if space["name"].endswith("_equal"):
            spaces[space["name"]] = space["settings"]
    assert list(spaces) == ["mac_cal_equal", "retrain_equal", "tst_equal", "vtst_equal"]
    shared = {"lr", "weight_decay", "batch_size", "epochs", "select", "loss_reduction"}
    for name in shared:
        values = [settings[f"head.{name}"] for settings in spaces.values()]
        assert values == values[:1] * 4


TABLE = "docs/examples/plugin_table.py"


@pytest.mark.slow
@pytest.mark.ray
def test_a_table_of_a_paper_is_made(tmp_path, monkeypatch):
    shared_ray()
    monkeypatch.chdir(ROOT)
    (line,) = [text for _, text in commands() if TABLE in text and "smoke" in text]
    made = here(*shlex.split(line)[1:], "--out", tmp_path)
    assert made.returncode == 0, made.stderr
    assert len(pd.read_csv(tmp_path / "smoothing-table2/claims.csv")) == 3
    assert "smoothing/table2" not in REPRODUCTIONS  # the plug-in is out again


@pytest.mark.parametrize("language", ["python", "sql"])
def test_queries_of_the_results_file_give_the_numbers_of_the_rows(tmp_path, monkeypatch, language):
    rows = load(EXAMPLE / "compare").done
    file = tmp_path / "results.parquet"
    assert here("export", EXAMPLE / "compare", file).returncode == 0
    monkeypatch.chdir(tmp_path)
    query = blocks(page("results-on-disk"), language)[-1]
    if language == "sql":
        table = pytest.importorskip("duckdb").sql(query).df().set_index("method")
    else:
        names = {}
        exec(query, names)
        table = names["table"]
    expected = rows.groupby("rung_label")["test/ece"].agg(["mean", "std", "count"])
    assert list(table.index) == list(expected.index)
    for name in expected:
        assert table[name].tolist() == pytest.approx(expected[name].tolist(), abs=1e-12)


def test_python_of_the_pages_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    reading, _ = blocks(page("results-on-disk"), "python")
    exec(reading, {})
    assert "temperature" in capsys.readouterr().out
    drawing, figures = blocks(page("analysis"), "python")
    drawing = drawing.replace("runs/mixup/alpha-digits", "analysis/example/search")
    drawing = drawing.replace("network.alpha", "head.gamma").replace("test/ece", "select/ece")
    mpl.use("Agg")
    exec(drawing, {})
    assert plt.gca().get_lines() or plt.gca().collections
    exec(figures.replace("runs/search", "analysis/example/search"), {})
    plt.close("all")
    *_, opening, statistics = blocks(page("python"), "python")
    for block in (opening, statistics):
        for name in ("reliability.png", "critical_difference.pdf"):
            block = block.replace(name, str(tmp_path / name))
        exec(block, {"tune_calib": tune_calib})
    assert (tmp_path / "reliability.png").stat().st_size > 10_000
    assert (tmp_path / "critical_difference.pdf").stat().st_size > 1_000


def test_weights_of_a_nested_checkpoint_with_tied_tensors_are_converted(tmp_path, monkeypatch):
    (code,) = [block for block in blocks(page("data"), "python") if "save_file" in block]
    monkeypatch.chdir(tmp_path)
    tied = torch.arange(6.0).reshape(2, 3)
    state = {"a.weight": tied, "b.weight": tied, "c": tied.T}
    for content in (state, {"epoch": 3, "state_dict": state, "optimizer": {"lr": 0.1}}):
        torch.save(content, "weights.pth")
        exec(code, {})
        read = load_file("weights.safetensors")
        assert {name: tensor.tolist() for name, tensor in read.items()} == {
            name: tensor.tolist() for name, tensor in state.items()
        }
