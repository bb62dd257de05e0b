"""Tables in LaTeX: what stands in them, and that they compile in a two-column paper."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import analysis
from analysis.compare import ranks, significance
from analysis.compare.gather import Matched
from analysis.compare.ranks import rank
from analysis.compare.significance import judge
from analysis.ladder import tables
from analysis.ladder.results import QUANTITIES
from analysis.ladder.results import samples as samples_of
from analysis.load import load
from analysis.published import published, published_tables
from analysis.search import tables as search_tables
from analysis.search.load import load_search
from analysis.tables.latex import escape, latex
from analysis.tables.table import table_of
from tests import fake_results
from tests.support import sample
from tune_calib.cli import app
from tune_calib.documents import seal
from tune_calib.errors import UserError

EXAMPLE = Path(analysis.__file__).parent / "example"
ODD = ["∞ ± ↑↓ Δ é ñ ß ² τ Ω", r"a_b & 5% $x$ #1 {y} \z ~ ^", "[x] --set <c>|d", "* 中文 μ µ “q” …"]
OVERFULL_PT = 2.0

PAPER = r"""\documentclass[twocolumn]{article}
\usepackage{array,booktabs}
\begin{document}
%s
See Table~\ref{%s}.
\end{document}
"""


def ladder(folder, labels=None, bad=None, seeds=3):
    """A ladder, its rungs under other names."""
    fake_results.write(folder, seeds=seeds, bad=bad)
    if labels is not None:
        path = folder / "sweep.json"
        manifest = json.loads(path.read_text())
        for rung, label in zip(manifest["rungs"], labels, strict=True):
            rung["label"] = label
        path.write_bytes(seal(manifest))
    return latex(tables.ladder(load(folder)))


def samples(folder, labels):
    fake_results.write(folder)
    last = pd.DataFrame(
        {"rung": k, "label": label, "split": split, "quantity": q, "n": 3, "mean": 0.5, "sd": 0.1}
        for k, label in enumerate(labels)
        for split in ("train", "select")
        for q in QUANTITIES
    )
    return latex(samples_of(load(folder), last))


def declared(test, methods, blocks=6):
    chance = np.random.default_rng(0)
    values = {m: 0.1 * k + chance.normal(0.1, 0.01, blocks) for k, m in enumerate(methods)}
    verdict = judge(Matched("ece", "seed", pd.DataFrame(values)), test, methods[0])
    return significance.view(verdict).render("latex")


def search(folder):
    points = [{**fake_results.DEFAULTS, "head.lr": 10.0**-k} for k in range(1, 5)]
    fake_results.write_search(
        folder, points, [0.05, 0.04, 0.06, 0.07], importance={"head.lr": 0.9, "head.shape": 0.1},
        metrics=("ece", "accuracy"),
    )  # fmt: skip
    return of_search(folder)


def of_search(folder):
    results = load_search(folder)
    found = [build(results) for build in (search_tables.best, search_tables.importance)]
    return latex(*found, search_tables.share(results))


MANY = [f"method number {k} with a name that goes on" for k in range(60)]
CASES = {
    "ladder": lambda out: ladder(out),
    "ladder of odd names": lambda out: ladder(out, ODD),
    "ladder of long names": lambda out: ladder(out, MANY[:4], bad="diverged"),
    "one seed": lambda out: ladder(out, seeds=1),
    "example ladder": lambda out: latex(tables.ladder(load(EXAMPLE / "ladder"))),
    "example comparison": lambda out: latex(tables.ladder(load(EXAMPLE / "compare"))),
    "samples": lambda out: samples(out, ODD),
    "search": search,
    "example search": lambda out: of_search(EXAMPLE / "search"),
    "t": lambda out: declared("t", ODD),
    "wilcoxon of many": lambda out: declared("wilcoxon", MANY),
    "too few for wilcoxon": lambda out: declared("wilcoxon", ODD, blocks=5),
    "friedman of many": lambda out: declared("friedman", MANY),
    "friedman": lambda out: declared("friedman", ODD),
} | {
    f"ranks of {name}": lambda out, name=name: ranks.view(rank(published(name), "ece")).render(
        "latex"
    )
    for name in published_tables()
    if "ece" in set(published(name).query("backbone != 'average'")["metric"])
    and name not in ("maccal/table3",)
}


@pytest.mark.parametrize("case", sample(CASES, 3))
def test_tables_are_ascii_and_numbers_stand_at_the_right(case, tmp_path):
    text = CASES[case](tmp_path)
    assert text.isascii()
    assert r"\caption{" in text
    assert re.findall(r"\\label\{tab:[a-z0-9-]+\}", text)
    assert "usepackage{array,booktabs}" in text
    for body in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        spec, *_ = body.splitlines()
        columns = re.sub(r">\{.*?\}p\{.*?\}", "p", spec).strip("{}")
        rows = body[body.index(r"\midrule") :].split("\\\\\n")[:-1]
        cells = [re.split(r"(?<!\\)&", row) for row in rows]
        for place, align in enumerate(columns[1:], start=1):
            told = [row[place].strip() for row in cells]
            numbers = [cell for cell in told if re.match(r"(\$[-<]\$|\\\w+\{|\+)?[\d.]", cell)]
            has_words = len(numbers) <= sum(cell != "--" for cell in told) / 2
            assert align == "r" or has_words, (place, told)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
@pytest.mark.parametrize("case", sample(CASES, 1))
def test_tables_compile_and_fit_a_two_column_paper(case, tmp_path):
    text = CASES[case](tmp_path / "results")
    label = re.search(r"\\label\{(.*?)\}", text)[1]
    (tmp_path / "paper.tex").write_text(PAPER % (text, label))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "paper.log").read_text(errors="replace")
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
    assert [points for points in wide if points > OVERFULL_PT] == []
    for word in ("Float too large", "Missing character", "multiply defined", "Undefined"):
        assert word not in log


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L∞", r"L$\infty$"), ("é", r"\'{e}"), ("--set", "-{}-set"), ("a---b", "a-{}-{}-b"),
        ("τ Ω ω Λ", r"$\tau$ $\Omega$ $\omega$ $\Lambda$"), ("10²", "10$^2$"), ("中", "[U+4E2D]"),
        ("50 %\n", r"50 \% "), ("<5", "$<$5"), ("ą", "[U+0105]"),
    ],
)  # fmt: skip
def test_every_character_becomes_one_that_pdflatex_has(text, expected):
    assert escape(text) == expected


def test_a_label_that_begins_with_a_bracket_is_no_option_of_the_rule_before():
    text = latex(table_of(["a", "b"], [["[x]", 1], ["*y", 2]]))
    assert "{}[x] & 1" in text
    assert "{}*y & 2" in text


def test_caption_and_label_are_for_latex_alone():
    def run(*arguments):
        result = CliRunner().invoke(app, [*arguments, "--caption", "Mine & é", "--label", "tab:my"])
        if isinstance(result.exception, UserError):
            raise result.exception
        return result.stdout

    ranks = ("analyze", "ranks", "--published", "fedlas/table1")
    tested = ("analyze", "significance", "--published", "fedlas/table1", "--baseline", "CE")
    for command in (ranks, tested):
        text = run(*command, "--latex")
        assert r"\caption{Mine \& \'{e}}" in text
        assert r"\label{tab:my}" in text
        with pytest.raises(UserError, match="add --latex"):
            run(*command, "--markdown")
    assert r"\label{tab:my-spread}" in run(*tested, "--latex")


@pytest.mark.parametrize("label", ["a{b", "50%", "a\\b", "#1"])
def test_a_label_that_latex_does_not_take_is_one_line(label):
    arguments = ["analyze", "ranks", "--published", "fedlas/table1", "--latex", "--label", label]
    with pytest.raises(UserError, match="LaTeX does not allow"):
        raise CliRunner().invoke(app, arguments).exception
