"""Shifted images as columns of trials: means over the same kinds or none, tables, ranks."""

import pytest

from analysis.compare.gather import collect
from analysis.ladder.shift_tables import means, shift_tables
from analysis.ladder.shift_tables import table as printed
from analysis.load import load
from analysis.report import write_report
from analysis.shifts import FAMILIES, read_shifts
from analysis.tidy import parted
from tests import fake_results
from tune_calib.errors import UserError
from tune_calib.spec.metrics import CORRUPTION_METRICS


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path)
    return tmp_path


def value(part, spec_hash="1-0"):
    return fake_results.shifted_value(spec_hash, part)


def test_means_are_over_all_kinds_and_severities(out):
    family, kinds = "generated", FAMILIES["generated"]
    fake_results.add_shifts(out, [f"{family}/{kind}" for kind in (*kinds, "speckle_noise")])
    row = load(out).trials.set_index("spec_hash").loc["1-0"]
    parts = {(kind, n): value(f"{family}/{kind}/{n}") for kind in kinds for n in range(1, 6)}
    for metric in CORRUPTION_METRICS:
        assert row[f"{family}/fog/3/{metric}"] == parts["fog", 3]
        fog = [parts["fog", n] for n in range(1, 6)]
        assert row[f"{family}/fog/mean/{metric}"] == pytest.approx(sum(fog) / 5)
        # Kinds that the benchmark keeps apart are in no mean over kinds.
        second = [parts[kind, 2] for kind in kinds]
        assert row[f"{family}/mean/2/{metric}"] == pytest.approx(sum(second) / len(kinds))
        whole = sum(parts.values()) / len(parts)
        assert row[f"{family}/mean/{metric}"] == pytest.approx(whole)


def test_a_mean_that_lacks_a_kind_or_severity_is_none(out):
    kinds = FAMILIES["generated"]
    fake_results.add_shifts(
        out, [f"generated/{kind}" for kind in kinds], left_out="generated/fog/3"
    )
    trials = load(out).trials.set_index("spec_hash")
    first, other = trials.iloc[0], trials.loc["1-1"]
    for name in ("fog/mean", "mean/3", "mean"):
        assert first.isna()[f"generated/{name}/ece"]
        assert other.notna()[f"generated/{name}/ece"]
    assert first.notna()["generated/mean/2/ece"]


def test_a_trial_that_lacks_a_foreign_set_has_no_mean_over_them(out):
    sets = ["ood/svhn", "ood/noise"]
    fake_results.add_shifts(out, sets, left_out="ood/noise")
    trials = load(out).trials.set_index("spec_hash")
    column = trials["ood/mean/auroc"]
    assert column.index[column.isna()].tolist() == [trials.index[0]]
    assert trials.iloc[0].notna()["ood/svhn/auroc"]
    assert column["1-1"] == pytest.approx(sum(value(name, "1-1") for name in sets) / 2)


def test_rows_that_stand_twice_count_once(out):
    fake_results.add_shifts(out, ["ood/svhn"])
    once = read_shifts(out)
    fake_results.add_shifts(out, ["ood/svhn", "ood/noise"])
    twice = read_shifts(out)
    assert twice[list(once)].equals(once)


def test_tables_are_of_the_rungs_and_leave_no_number_out(out):
    names = [f"generated/{kind}" for kind in FAMILIES["generated"]]
    fake_results.add_shifts(out, ["ood/svhn", "ood/noise", *names])
    sweep = load(out)
    found = {table.key: table for table in shift_tables(sweep)}
    assert list(found) == [
        "ood", "generated-severity", "generated-kinds-accuracy", "generated-kinds-ece",
    ]  # fmt: skip
    severity = found["generated-severity"]
    assert "14 kinds (frost is not generated)" in severity.caption
    rows = printed(sweep, severity).records
    assert len(rows) == len(sweep.rungs)
    assert len(rows[0]) == 1 + 2 * 6
    table = means(sweep, found["ood"])
    of_one = table[(table["rung"] == 1) & (table["set"] == "ood/svhn")]
    wanted = sum(value("ood/svhn", f"1-{seed}") for seed in range(3)) / 3
    assert of_one["mean"].tolist() == pytest.approx([wanted] * len(of_one))
    assert set(of_one["n"]) == {3}
    write_report(out)
    for key in found:
        for kind in ("md", "tex", "csv"):
            assert (out / "tables" / f"{key}.{kind}").read_text()
    assert "Under shift" in (out / "report.html").read_text()


def test_a_metric_may_name_its_split(out):
    fake_results.add_shifts(out, ["ood/svhn", "ood/noise", "generated/fog"])
    frame = collect([out], None, "ood/svhn/auroc").frame
    assert set(frame["split"]) == {"ood/svhn"}
    assert set(collect([out], None, "auroc").frame["split"]) == {"ood/svhn", "ood/noise"}
    assert set(collect([out], None, "ece").frame["split"]) == {"test"}
    assert set(collect([out], None, "generated/fog/mean/ece").frame["split"]) == {
        "generated/fog/mean"
    }
    assert parted("ece") == ("ece", None)
    assert parted("auroc", "ood/svhn") == ("auroc", "ood/svhn")
    with pytest.raises(UserError, match="both name a split"):
        parted("ood/svhn/auroc", "ood/noise")


def test_single_corruption_kinds_have_no_mean_over_kinds(out):
    fake_results.add_shifts(out, ["generated/fog", "generated/snow"])
    columns = set(load(out).trials)
    assert "generated/fog/mean/ece" in columns
    assert not any(name.startswith("generated/mean/") for name in columns)
    assert [table.key for table in shift_tables(load(out))] == [
        "generated-kinds-accuracy", "generated-kinds-ece",
    ]  # fmt: skip
