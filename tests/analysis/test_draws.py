"""Draws of shifted images as claims read them: of a set, and of means over sets."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from analysis.compare.claims import judge
from analysis.load import load
from analysis.shifts import FAMILIES, read_draws
from tests import fake_results
from tests.support import sample
from tune_calib.results.tables import read_table, write_table
from tune_calib.spec.reproduction import Claim

COMMON = np.random.default_rng(0).normal(0, 0.02, 200)
KINDS = FAMILIES["generated"]
FOREIGN = ("ood/noise", "ood/svhn")
CORRUPTED = tuple(f"generated/{kind}/{n}" for kind in KINDS for n in range(1, 6))


def value(row, where):
    """Each rung two points better than that before."""
    sign = 1 if where.startswith("ood/") else -1
    return 0.5 + sign * 0.02 * row["rung"] + 0.001 * row["network_seed"] + 0.01 * len(where)


def looked_at(out, sets, lacking=(), resamples=200):
    """Let all trials have been looked at on some sets, with draws but for some of them."""
    fake_results.write(out, seeds=4)
    fake_results.add_network_check(out)
    rng = np.random.default_rng(1)
    rows = []
    for trial, where in itertools.product(read_table(out, "trials").to_pylist(), sets):
        metric = "auroc" if where.startswith("ood/") else "ece"
        told = {"spec_hash": trial["spec_hash"], "set": where, "metric": metric}
        number = value(trial, where)
        draws = number + COMMON[:resamples] + rng.normal(0, 0.001, resamples)
        has = (trial["spec_hash"], where) not in lacking
        drawn = {"resamples": resamples, "draws": draws.tolist()} if has else {}
        rows.append({**told, "value": number, "resamples": None, "draws": None, **drawn})
    write_table(out, "shifts", f"drawn-{resamples}", pa.Table.from_pylist(rows))
    return load(out)


MEANS = {
    "ood/svhn": ("ood/svhn",),
    "ood/mean": FOREIGN,
    "generated/fog/3": ("generated/fog/3",),
    "generated/fog/mean": tuple(f"generated/fog/{n}" for n in range(1, 6)),
    "generated/mean/4": tuple(f"generated/{kind}/4" for kind in KINDS),
    "generated/mean": CORRUPTED,
}


@pytest.mark.parametrize("split", sample(MEANS, 2))
def test_draws_of_a_mean_are_means_of_the_draws(split, tmp_path):
    metric = "auroc" if split.startswith("ood/") else "ece"
    sweep = looked_at(tmp_path, (*FOREIGN, *CORRUPTED))
    rows = read_table(tmp_path, "shifts").to_pylist()
    own = [r for r in rows if r["spec_hash"] == "2-1" and r["set"] in MEANS[split]]
    assert len(own) == len(MEANS[split])
    found = read_draws(sweep.out, metric, split)
    assert found["2-1"] == pytest.approx(np.mean([row["draws"] for row in own], axis=0))
    trial = sweep.trials.set_index("spec_hash").loc["2-1"]
    assert trial[f"{split}/{metric}"] == pytest.approx(np.mean([row["value"] for row in own]))
    assert found["2-1"].mean() == pytest.approx(trial[f"{split}/{metric}"], abs=0.01)


def test_a_claim_of_shifted_images_is_judged(tmp_path):
    metric = "ood/mean/auroc"
    sweep = looked_at(tmp_path, (*FOREIGN, *CORRUPTED))
    verdict = judge([[sweep]], Claim("+ two", ("vanilla",), metric, text=""))
    assert (verdict.outcome, verdict.why) == ("held", "")
    assert judge([[sweep]], Claim("vanilla", ("+ two",), metric, text="")).outcome == "not held"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["order", "rank"])
def test_draws_of_one_seed_suffice(kind, tmp_path):
    split = "ood/mean"
    claim = Claim("+ two", ("vanilla",), f"{split}/auroc", kind=kind, text="")
    lacking = {(f"{rung}-{seed}", "ood/svhn") for rung, seed in ((0, 1), (2, 2), (0, 3))}
    sweep = looked_at(tmp_path / "some", FOREIGN, lacking)
    whole = looked_at(tmp_path / "all", FOREIGN)
    verdict, expected = judge([[sweep]], claim), judge([[whole]], claim)
    assert (verdict.outcome, verdict.pairs) == (expected.outcome, 4) == ("held", 4)
    assert verdict.difference == expected.difference
    assert verdict.high - verdict.low >= expected.high - expected.low
    # No seed has draws of all rungs.
    sweep = looked_at(tmp_path / "none", FOREIGN, {*lacking, ("0-0", "ood/svhn")})
    verdict = judge([[sweep]], claim)
    assert (verdict.outcome, verdict.why) == (
        "not decided", "no intervals over the test samples",
    )  # fmt: skip


def test_of_several_numbers_of_draws_the_most_count(tmp_path):
    looked_at(tmp_path, FOREIGN, resamples=200)
    sweep = looked_at(tmp_path, FOREIGN, resamples=9)  # the name of its file is behind the other
    assert {len(own) for own in read_draws(sweep.out, "auroc", "ood/mean").values()} == {200}
