"""Flags: what deserves one, that its row has it, and that no table lets it pass for the best."""

import json

import pytest
import torch
from torch import Tensor

from analysis.compare import ranks, significance
from analysis.compare.gather import collect, over_seeds
from analysis.compare.hypotheses import friedman
from analysis.compare.ranks import rank
from analysis.ladder import tables
from analysis.load import load
from analysis.tables.latex import escape, latex
from analysis.tables.render import markdown
from tests import fake_results
from tests.support import sample, small_spec
from tests.tuning.search.support import row as searched
from tune_calib.engine.evaluate import SplitLogits, evaluate_one
from tune_calib.methods.temperature import TemperatureParams, TemperatureScaling
from tune_calib.metrics.scoring import is_at_chance
from tune_calib.results.tables import read_table
from tune_calib.spec.names import CHANCE, CONTROL, FEW_IMAGES, FLAGS, NEVER_BEST
from tune_calib.spec.slots.base import PostHocSlot
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.ray.trainables import trainable
from tune_calib.tuning.search.definition import Objective

FITS = ("nll", "grid_nll", "grid_ece")
RIVALS = ("base", "variant", "variant", "variant")


def logits_that_are_right(right: Tensor, classes: int = 4, margin: float = 2.0):
    """Logits (N, C) with a margin for a class that is the label where ``right`` says so."""
    labels = torch.arange(len(right)) % classes
    named = torch.where(right, labels, (labels + 1) % classes)
    return margin * torch.nn.functional.one_hot(named, classes).double(), labels


def chance_logits(samples: int, classes: int = 4, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % classes
    return torch.randn(samples, classes, generator=generator, dtype=torch.float64), labels


# --- at chance


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("samples", [200, 5000])
def test_guesses_and_constant_predictions_are_at_chance(samples, classes):
    guessed, labels = chance_logits(samples, classes)
    named = torch.zeros(samples, classes, dtype=torch.float64)
    named[:, 0] = 5
    for logits in (guessed, named):
        assert is_at_chance(logits.argmax(1), labels)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_chance_is_the_share_of_the_largest_class(share):
    labels = (torch.arange(1000) >= 1000 * share).long()
    named = torch.tensor([[3.0, 0.0]], dtype=torch.float64).expand(1000, 2)
    assert is_at_chance(named.argmax(1), labels)
    assert not is_at_chance(labels, labels)


@pytest.mark.parametrize(("accuracy", "expected"), [(0.10, True), (0.13, True), (0.2, False)])
def test_an_accuracy_near_chance_must_differ_significantly(accuracy, expected):
    right = torch.arange(500) < 500 * accuracy
    logits, labels = logits_that_are_right(right[torch.randperm(500)], 10)
    assert is_at_chance(logits.argmax(1), labels) is expected


# --- temperature


def flags_of(fit, logits, labels):
    scaling = TemperatureScaling(TemperatureParams(fit=fit))
    scaling.fit(logits[None], labels)
    return {name for name, is_so in scaling.flags().items() if bool(is_so)}


@pytest.mark.parametrize("margin", sample([0.5, 5.0, 2000.0], 1))
@pytest.mark.parametrize("fit", FITS)
def test_calib_all_right_has_no_best_temperature(fit, margin):
    right = torch.ones(100, dtype=torch.bool)
    assert "temperature_bound" in flags_of(fit, *logits_that_are_right(right, margin=margin))


@pytest.mark.parametrize("fit", FITS)
def test_random_labels_run_to_the_other_end(fit):
    logits, labels = chance_logits(400)
    assert "temperature_bound" in flags_of(fit, 50 * logits, labels)


@pytest.mark.parametrize("fit", FITS)
def test_a_temperature_that_cross_validation_finds_worse_than_none_is_flagged(fit):
    # Every fold but one is all right: without that one the fit goes far below 1.
    right = torch.arange(200) % 5 != 0
    logits, labels = logits_that_are_right(right, classes=3)
    assert flags_of(fit, logits, labels) == {"temperature_harms"}


@pytest.mark.slow
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("scale", sample([0.5, 1.0, 4.0], 1))
def test_an_ordinary_temperature_has_no_flag(fit, scale):
    flagged = 0
    for seed in range(10):
        # With fewer samples, the error of a grid in steps of 0.1 sometimes reaches 1 %.
        logits, _ = chance_logits(2000, seed=seed)
        chance = torch.Generator().manual_seed(seed)
        labels = torch.multinomial((2 * logits).softmax(1), 1, generator=chance).squeeze(1)
        flagged += bool(flags_of(fit, 2 * scale * logits, labels))
    assert flagged == 0


# --- the row


@pytest.mark.parametrize("posthoc", sample([PostHocSlot(method="temperature"), None], 1))
def test_an_evaluation_has_the_flags_of_its_classifier_and_its_transform(posthoc):
    good, labels = logits_that_are_right(torch.ones(200, dtype=torch.bool))
    bad, _ = chance_logits(200)
    for select, expected in ((good, set()), (bad, {CHANCE})):
        splits = {"select": select, "calib": select, "test": good}
        logits = {name: SplitLogits(values[None], labels) for name, values in splits.items()}
        expected = expected | ({"temperature_bound"} if posthoc and select is good else set())
        assert set(evaluate_one(logits, posthoc).flags) == expected


def test_chance_is_decided_on_select_and_calib_together_from_a_hundred_images_on():
    def flags(select: tuple[int, int], calib: tuple[int, int]):
        pairs = {"select": select, "calib": calib}
        splits = {}
        for name, (right, count) in pairs.items():
            logits, labels = logits_that_are_right(torch.arange(count) < right)
            splits[name] = SplitLogits(logits[None], labels)
        return evaluate_one(splits, None).flags

    assert flags((4, 6), (9, 10)) == ()  # on 6 images alone, the test would say chance
    assert flags((3, 6), (5, 10)) == (FEW_IMAGES,)
    assert flags((12, 49), (13, 50)) == (FEW_IMAGES,)
    assert flags((12, 50), (13, 50)) == (CHANCE,)
    assert flags((12, 50), (40, 50)) == ()


def test_the_row_of_an_untrained_head_is_flagged_as_chance(trained, tmp_path):
    slots = small_spec(method="mac_cal", lr=1e-9, epochs=1).model_dump(mode="json")
    run = Provenance(out=str(tmp_path), store=str(trained.root), git_revision=None)
    result = trainable("mac_cal")({**slots, "run": run.plain()}).step()
    assert result["status"] == "done"
    assert result["flags"] == CHANCE
    assert read_table(tmp_path, "trials")["flags"].to_pylist() == [CHANCE]


# --- tables


@pytest.fixture(scope="module", params=sample([CHANCE, CONTROL, "posthoc_harms"], 2))
def flag(request):
    return FLAGS[request.param]


@pytest.fixture(scope="module")
def out(tmp_path_factory, flag):
    """A run whose best rung by ECE (the control) has a flagged trial."""
    out = tmp_path_factory.mktemp("flagged")
    fake_results.write(out, kinds=RIVALS, seeds=6, flags={3: flag.name})
    return out


RENDERED = {"markdown": markdown, "plain": str, "latex": latex}


def line_of(text, label):
    return next(line for line in text.splitlines() if label in line)


@pytest.mark.parametrize("kind", sample(RENDERED, 2))
def test_a_ladder_shows_the_sign_and_its_meaning_and_never_the_best_at_chance(kind, out, flag):
    text = RENDERED[kind](tables.ladder(load(out)))
    shown = escape if kind == "latex" else str
    assert f"control {shown(flag.sign)} " in line_of(text, "control")
    assert shown(f"{flag.sign} {flag.name} (1 trial): {flag.meaning}") in text
    pattern = {"markdown": "**{}", "plain": "{} ± 1.87 *", "latex": r"\textbf{{{}"}[kind]
    is_barred = flag.name in NEVER_BEST
    assert (pattern.format("6.50") in line_of(text, "control")) == (not is_barred)
    assert pattern.format("8.50") not in line_of(text, "+ two")  # a mark never moves on
    # What prints as the best does is no better for it: MCE and NLL are equal in all rungs.
    marks = [pattern.split("{}")[0], "<u>", " *", " +", "underline"]
    assert not is_barred or not any(m and m in line_of(text, "control") for m in marks)


@pytest.mark.parametrize("kind", sample(["plain", "markdown", "latex", "html", "json"], 2))
def test_ranks_show_the_flag_and_put_chance_last(kind, out, flag):
    frame, notes, *_ = collect([out], None, "ece")
    table = rank(frame, "ece", notes=notes)
    last = max(table.summary["mean_rank"])
    is_barred = flag.name in NEVER_BEST
    assert (table.summary["mean_rank"]["control"] == last) == is_barred
    assert (table.summary["wins"]["control"] == 0) == is_barred
    text = ranks.view(table).render(kind)
    if kind == "json":
        assert [entry["method"] for entry in json.loads(text)][-1 if is_barred else 0] == "control"
        return
    sign = escape(flag.sign) if kind == "latex" else flag.sign
    assert f"control {sign}" in text
    assert "(1 trial): " in text


def test_friedman_leaves_out_what_is_at_chance(out, flag):
    matched = over_seeds(load(out), "ece")
    result = friedman(matched)
    assert ("control" in result.ranks) is (flag.name not in NEVER_BEST)
    assert ("left out, at chance or a trivial control: control" in result.notes) is (
        flag.name in NEVER_BEST
    )
    standing = significance.judge(matched, "wilcoxon", "vanilla")
    text = significance.view(standing).render("plain")
    assert text.count(f"control {flag.sign}") == 2
    assert f"{flag.sign} {flag.name} (1 trial): " in text


# --- a search


@pytest.mark.parametrize("baseline", [0.9, 0.1])
def test_a_search_never_chooses_what_is_at_chance(baseline):
    objective = Objective(("ece",), 0.01)
    good = objective.summarise([searched(ece=0.2, accuracy=baseline)], {0: baseline})
    rows = [searched(ece=0.01, accuracy=baseline), searched(ece=0.02, accuracy=baseline)]
    bad = objective.summarise([rows[0], {**rows[1], "flags": f"{CHANCE},x"}], {0: baseline})
    assert bad.status == "done"
    assert objective.choose({0: bad, 1: good}) == 1
    assert objective.find_front({0: bad, 1: good}) == [1]
    assert objective.choose({0: bad}) is None
    assert objective.excess(bad) > 0
