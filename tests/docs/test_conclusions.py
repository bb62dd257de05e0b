"""Conclusions in the pages are what the shipped rows decide.

A sentence that says what is decided is followed by a comment with its rows and its decisions, those
of ``analyze significance RUN --baseline REFERENCE --metric METRIC``::

    <!-- conclusion: {run: resnet50/tuned, metric: nll, reference: ce, better: [tst, vtst]} -->
"""

import lzma
import re
from functools import cache
from itertools import chain
from typing import get_args

import numpy as np
import pytest
import yaml
from safetensors.numpy import load as load_arrays

from analysis.compare.decision import Outcome, decide_sums
from analysis.load import load
from docs.result_tables import PAGES, ROOT, SHIPPED
from tune_calib import SplineCalibration
from tune_calib.files.paths import parse_path
from tune_calib.spec.reproduction import Comparison

MARK = re.compile(r"<!-- conclusion: (\{.*\}) -->")


def conclusions(text):
    return list(map(yaml.safe_load, MARK.findall(text)))


@cache
def decisions(folder, metric, reference):
    run = load(parse_path(str(SHIPPED / folder)))
    methods = [label for label in run.labels.values() if label != reference]
    decided = decide_sums(run, [Comparison(method, (reference,), metric) for method in methods])
    return {decision.method: decision.outcome for decision in decided}


def contradictions(conclusion):
    """What the rows decide otherwise."""
    outcomes = {key: conclusion[key] for key in get_args(Outcome) if key in conclusion}
    where = {key: conclusion[key] for key in conclusion.keys() - outcomes}
    decided = decisions(where.pop("run"), where.pop("metric"), where.pop("reference"))
    assert outcomes, "a conclusion without a decision"
    assert not where, f"unknown: {where}"
    return {
        method: decided[method]
        for outcome, methods in outcomes.items()
        for method in methods
        if decided[method] != outcome
    }


@pytest.mark.slow  # reads the draws of the shipped rows
@pytest.mark.timeout(600)
def test_the_rows_carry_every_conclusion():
    pages = [ROOT / "README.md", *sorted(PAGES.glob("*.md"))]
    found = {page.name: conclusions(page.read_text(encoding="utf-8")) for page in pages}
    assert len(list(chain.from_iterable(found.values()))) >= 10
    for name, of_page in found.items():
        for conclusion in of_page:
            assert not contradictions(conclusion), f"{name}: {conclusion}"


@pytest.mark.slow
def test_a_conclusion_that_the_rows_do_not_carry_is_found():
    text = (
        "<!-- conclusion: {run: resnet50/shift, metric: nll, reference: temperature, "
        "better: [spline, vector], undecided: [matrix]} -->"
    )
    (conclusion,) = conclusions(f"Both are better.\n{text}\n")
    assert contradictions(conclusion) == {"vector": "worse", "matrix": "better"}


def test_every_mark_of_a_conclusion_is_read():
    for page in (ROOT / "README.md", *PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert len(conclusions(text)) == text.count("<!-- conclusion"), page.name


@pytest.mark.slow
@pytest.mark.parametrize(("column", "name"), [(1, "ce"), (2, "ls")])
def test_the_splines_of_the_networks_have_the_numbers_of_their_page(column, name):
    networks = ROOT / "docs/networks"
    file = networks / f"cifar100-resnet18-{name}/logits.safetensors.xz"
    arrays = load_arrays(lzma.decompress(file.read_bytes()))
    calib, test = arrays["calib.logits"].astype(float), arrays["test.logits"].astype(float)
    labels = arrays["test.labels"]
    probabilities = SplineCalibration().fit(calib, arrays["calib.labels"]).predict_proba(test)
    nll = -np.log(probabilities[np.arange(len(labels)), labels]).mean()
    confidences = probabilities.max(axis=1)
    gaps = confidences - (probabilities.argmax(axis=1) == labels)
    bins = np.bincount(np.ceil(confidences * 15).astype(int), gaps)
    numbers = {
        "ECE with a spline": 100 * np.abs(bins).sum() / len(labels),
        "NLL with this spline": nll,
    }
    page = (networks / "README.md").read_text(encoding="utf-8")
    for start, number in numbers.items():
        (line,) = re.findall(rf"^\| {start}.*$", page, re.M)
        assert float(line.split(" | ")[column].strip("% |")) == pytest.approx(number, abs=0.0051)
