"""Tables in LaTeX: their text, and that they compile in a two-column paper."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.compare import ranks, significance
from analysis.compare.gather import Matched
from analysis.compare.ranks import rank
from analysis.compare.significance import judge
from analysis.ladder import tables
from analysis.load import load
from analysis.published import published
from analysis.search import tables as search_tables
from analysis.search.load import load_search
from analysis.tables.latex import escape, latex
from analysis.tables.table import table_of
from tests import fake_results
from tune_calib.files.documents import seal

EXAMPLE = Path(analysis.__file__).parent / "example"
ODD = ["∞ ± ↑↓ Δ é ñ ß ² τ Ω", r"a_b & 5% $x$ #1 {y} \z ~ ^", "[x] --set <c>|d", "* 中文 μ µ “q” …"]

PAPER = r"""\documentclass[twocolumn]{article}
\usepackage{array,booktabs,graphicx}
\begin{document}
%s
See Table~\ref{%s}.
\end{document}
"""


def odd_ladder(folder):
    """Write a ladder with odd names, and return its table."""
    fake_results.write(folder)
    path = folder / "sweep.json"
    manifest = json.loads(path.read_text())
    for rung, label in zip(manifest["rungs"], ODD, strict=True):
        rung["label"] = label
    path.write_bytes(seal(manifest))
    return latex(tables.ladder(load(folder)))


def wilcoxon(folder):
    chance = np.random.default_rng(0)
    methods = [*ODD, "a method with a name that goes on " * 3]
    values = {m: 0.1 * k + chance.normal(0.1, 0.01, 6) for k, m in enumerate(methods)}
    verdict = judge(Matched("ece", "seed", pd.DataFrame(values)), "wilcoxon", methods[0])
    return significance.view(verdict).render("latex")


def search(folder):
    results = load_search(EXAMPLE / "search")
    return latex(search_tables.best(results), search_tables.importance(results))


def ranks_of_groups(folder):
    return ranks.view(rank(published("fedlas/table1"), "ece")).render("latex")


CASES = [odd_ladder, wilcoxon, search, ranks_of_groups]


@pytest.mark.parametrize("case", CASES)
def test_tables_have_captions_labels_and_numbers_at_the_right(case, tmp_path):
    text = case(tmp_path)
    assert r"\caption{" in text
    assert re.findall(r"\\label\{tab:[a-z0-9-]+\}", text)
    for body in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        spec, *_ = body.splitlines()
        columns = re.sub(r">\{.*?\}p\{.*?\}", "p", spec).strip("{}")
        rows = body[body.index(r"\midrule") :].split("\\\\\n")[:-1]
        cells = [re.split(r"(?<!\\)&", row) for row in rows]
        for place, align in enumerate(columns[1:], start=1):
            texts = [row[place].strip() for row in cells]
            numbers = [cell for cell in texts if re.match(r"(\$[-<]\$|\\\w+\{|\+)?[\d.]", cell)]
            has_words = len(numbers) <= sum(cell != "--" for cell in texts) / 2
            assert align == "r" or has_words, (place, texts)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
@pytest.mark.parametrize("case", [odd_ladder, pytest.param(wilcoxon, marks=pytest.mark.slow)])
def test_tables_compile_and_fit_a_two_column_paper(case, tmp_path):
    text = case(tmp_path / "results")
    label = re.search(r"\\label\{(.*?)\}", text)[1]
    (tmp_path / "paper.tex").write_text(PAPER % (text, label))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "paper.log").read_text(errors="replace")
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
    assert max(wide, default=0) < 2
    for word in ("Float too large", "Missing character", "multiply defined", "Undefined"):
        assert word not in log


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L∞", r"L$\infty$"), ("é", "é"), ("a---b", "a-{}-{}-b"), ("λ Ω", r"$\lambda$ [U+03A9]"),
        ("中", "[U+4E2D]"), ("50 %\n", r"50 \% "), ("ą", "[U+0105]"),
    ],
)  # fmt: skip
def test_every_character_becomes_one_that_pdflatex_has(text, expected):
    assert escape(text) == expected


def test_a_label_that_begins_with_a_bracket_is_no_option_of_the_rule_before():
    text = latex(table_of(["a", "b"], [["[x]", 1], ["*y", 2]]))
    assert "{}[x] & 1" in text
    assert "{}*y & 2" in text
