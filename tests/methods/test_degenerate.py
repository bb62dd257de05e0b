"""Inputs with too little, nothing or something foreign in them: a plain sentence, no traceback."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from tests import fake_results
from tests.support import sample
from tune_calib.cli import app
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.results.tables import read_table, write_results

RIVALS = ("base", "variant", "variant", "variant")
COMMANDS = {
    "status": ["status"],
    "report": ["report"],
    "ranks": ["analyze", "ranks", "--metric", "ece"],
    "wilcoxon": ["analyze", "significance", "--baseline", "vanilla"],
    "t": ["analyze", "significance", "--test", "t", "--baseline", "vanilla"],
    "friedman": ["analyze", "significance", "--test", "friedman"],
}


def rewrite(out, change):
    """Write the trials of a run again, each row changed."""
    rows = [change(row) for row in read_table(out, "trials").to_pylist()]
    shutil.rmtree(out / "trials")
    write_results(out, "all", {"trials": rows})


def manifest(out, **changes):
    path = out / "sweep.json"
    path.write_bytes(seal(json.loads(path.read_text()) | changes))


def one_seed(out):
    fake_results.write(out, seeds=1, kinds=RIVALS)


def all_tie(out):
    fake_results.write(out, seeds=6, kinds=RIVALS)
    rewrite(out, lambda row: row | {"test/ece": 0.1, "test/accuracy": 0.9})


def nan(out):
    fake_results.write(out, kinds=RIVALS)
    rewrite(out, lambda row: row | {name: float("nan") for name in row if "/" in name})


def no_result(out):
    fake_results.write(out, kinds=RIVALS)
    shutil.rmtree(out / "trials")


def empty(out):
    out.mkdir()


def half_written(out):
    fake_results.write(out, kinds=RIVALS)
    path = out / "trials" / "0-0.parquet"
    path.write_bytes(path.read_bytes()[:100])


# What each command says; where a message starts with "error: " the command must fail with it.
SAYS = {
    one_seed: {
        "status": "4 trials planned: 4 done",
        "report": "1 seed: no spread",
        "ranks": "only one column",
        "wilcoxon": "too few pairs that differ (1)",
        "t": "too few pairs (1) for a t test",
        "friedman": "too few blocks (1)",
    },
    all_tie: {
        "status": "24 done",
        "report": "10.00 ± 0.00 *",
        "ranks": "all methods tie in every column",
        "wilcoxon": "all 6 pairs are equal",
        "t": "all 6 pairs are equal",
        "friedman": "all methods tie in every block",
    },
    nan: {
        "status": "12 done",
        "report": "not drawn, no finished trial has accuracy and ECE on test",
        "ranks": "error: no column of these results has ECE",
        "wilcoxon": "error: no method has ECE in these results",
        "t": "error: no method has ECE in these results",
        "friedman": "error: no method has ECE in these results",
    },
    no_result: {
        "status": "12 missing",
        "report": "no result yet, 12 trials planned",
        "ranks": "error: no column of these results has ECE",
        "wilcoxon": "error: no method has ECE in these results",
        "t": "error: no method has ECE in these results",
        "friedman": "error: no method has ECE in these results",
    },
    empty: dict.fromkeys(COMMANDS, "error: sweep contains no sweep.json"),
    half_written: dict.fromkeys(COMMANDS, "error: 0-0.parquet is not a complete Parquet file"),
}


@pytest.mark.parametrize("command", sample(COMMANDS, 1))
@pytest.mark.parametrize("write", SAYS, ids=lambda write: write.__name__)
def test_degenerate_inputs_give_one_sentence(tmp_path, write, command, request):
    if "not drawn" in SAYS[write][command]:
        request.getfixturevalue("with_figures")
    out = tmp_path / "sweep"
    write(out)
    result = CliRunner().invoke(app, [*COMMANDS[command], str(out)])
    said = SAYS[write][command]
    if not said.startswith("error: "):
        assert result.exception is None, result.exception
        assert said in result.output
        return
    assert isinstance(result.exception, UserError)
    message = str(result.exception)
    assert "\n" not in message
    assert said.removeprefix("error: ") in message.replace(str(tmp_path), "").replace(
        "/sweep/trials/", ""
    ).replace("/sweep", "sweep")
