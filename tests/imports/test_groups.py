"""Groups of imported samples, such as those of a patient."""

import numpy as np
import pytest
import torch

import tune_calib
from analysis.compare.intervals import over_samples
from analysis.load import load
from tests.imports.files import outputs, write
from tests.support import here
from tune_calib.engine.bank import FeatureBank
from tune_calib.engine.imports import check_files, open_import, read_record, write_import
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.store import Store
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.metrics.summary import evaluate
from tune_calib.results.tables import read_table
from tune_calib.spec.trial import TrialSpec

SIZES = {"calib": 120, "test": 80}
SIZE_OF_GROUP = 6


def files_of(folder, groups=("calib", "test"), names=("calib", "test"), first=0):
    """Files of splits, as arguments of ``check_files``; no two splits share a group."""
    files = {"train": [], "select": [], "head": []}
    for seed, name in enumerate(names):
        samples = SIZES.get(name, 60)
        patients = first + 1000 * seed + np.arange(samples) // SIZE_OF_GROUP
        path = write(folder / f"{name}.npz", **outputs(samples, seed=seed), patient=patients)
        files[name] = [str(path)]
        if name in groups:
            files[name].append(f"groups={path}:patient")
    return files


def stored(files, folder):
    store = Store(folder / "store")
    write_import("mine", check_files(**files), store, replace=False)
    record = read_record("mine", store)
    return open_import(FeatureBank, record, store), record, store


def numbers(split):
    return set(split.groups.tolist())


def test_select_and_calib_are_halves_that_divide_no_group(tmp_path):
    bank, record, _ = stored(files_of(tmp_path), tmp_path)
    assert not numbers(bank.select()) & numbers(bank.calib())
    assert (record.select, record.calib) == (60, 60)
    assert record.groups == {"calib": 20, "test": 14}
    assert len(numbers(bank.test())) == 14


@pytest.mark.parametrize("names", [("calib", "test"), ("select", "calib", "test")])
def test_a_draw_divides_no_group(names, tmp_path):
    bank, record, _ = stored(files_of(tmp_path, names, names), tmp_path)
    selects = set()
    for seed in range(3):
        data = {"dataset": "imported", "imported": record, "split_seed": seed, "calib_size": 20}
        drawn = bank.for_trial(
            TrialSpec.build(data=data, network={"backbone": "imported", "epochs": 0})
        )
        assert not numbers(drawn.select()) & numbers(drawn.calib())
        assert len(drawn.calib().labels) == 20
        selects.add(tuple(sorted(numbers(drawn.select()))))
        # A subset has whole groups, but for the last one.
        sizes = np.bincount(np.unique(drawn.calib().groups, return_inverse=True)[1])
        assert sorted(sizes)[1:] == [SIZE_OF_GROUP] * 3
    assert len(selects) == 3


def test_groups_are_part_of_the_identity_only_where_they_are_given(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    plain = check_files(**files_of(tmp_path / "a", groups=())).record
    grouped = check_files(**files_of(tmp_path / "b")).record
    renamed = check_files(**files_of(tmp_path / "c", first=5000)).record
    assert plain.digest == "3c78a7f41006b675"  # as before groups existed
    assert len({plain.digest, grouped.digest, renamed.digest}) == 3
    assert "groups" not in plain.model_dump()


def test_damaged_groups_are_found(tmp_path):
    bank, record, store = stored(files_of(tmp_path), tmp_path)
    path = bank.folder / "calib.arrow"
    data = bytearray(path.read_bytes())
    data[data.rindex(int(bank.calib().groups[-1]).to_bytes(8, "little"))] ^= 1
    path.write_bytes(data)
    with pytest.raises((DamagedFileError, UserError)):
        open_import(FeatureBank, record, Store(store.root))


@pytest.mark.parametrize(
    ("groups", "patients", "message"),
    [
        (("calib",), {}, "`test` has no groups, but another split has"),
        (("calib", "test"), {"test": np.zeros(80, int)}, "`calib` and `test` share group 0"),
        (("calib", "test"), {"test": np.full(80, 7000)}, "has 1 group, but needs at least 2"),
        (("calib", "test"), {"calib": np.full(120, 9)}, "has 1 group, but needs at least 2"),
        (("calib", "test"), {"calib": np.arange(119)}, "has 119 samples, but there are 120 labels"),
        (("calib", "test"), {"calib": np.ones(120)}, "of whole numbers"),
    ],
)
def test_wrong_groups_are_refused(groups, patients, message, tmp_path):
    files = files_of(tmp_path, groups)
    for name, values in patients.items():
        path = write(tmp_path / f"{name}-groups.npz", patient=values)
        files[name][1] = f"groups={path}:patient"
    with pytest.raises(UserError, match=message):
        check_files(**files)


def test_the_bootstrap_of_groups_equals_metrics_of_drawn_groups():
    chance = np.random.RandomState(0)
    # Of different sizes, so that the number of drawn samples varies.
    groups = torch.from_numpy(np.repeat(np.arange(30), chance.randint(1, 12, size=30)))
    labels = torch.from_numpy(chance.randint(4, size=len(groups)))
    logits = torch.from_numpy(chance.randn(len(groups), 4)).double()
    logits[torch.arange(len(groups)), labels] += 1
    intervals = bootstrap(logits[None], labels, resamples=40, seed=3, groups=groups)
    generator = torch.Generator().manual_seed(3)
    members = [(groups == name).nonzero().flatten() for name in range(30)]
    longest = -(-len(groups) // min(map(len, members)))
    for number, names in enumerate(torch.randint(30, (40, longest), generator=generator)):
        # Whole groups one after the other, the last one in part.
        places = torch.cat([members[name] for name in names])[: len(groups)]
        expected = evaluate(logits[places], labels[places])
        for metric in ("accuracy", "ece", "aece", "cece", "nll", "brier", "sweep_ece", "aurc"):
            value = float(intervals[metric].draws[0, number])
            assert value == pytest.approx(float(expected[metric]), abs=1e-9), metric


def test_groups_of_single_samples_are_drawn_like_samples():
    chance = np.random.RandomState(1)
    labels = torch.from_numpy(chance.randint(3, size=50))
    logits = torch.from_numpy(chance.randn(1, 50, 3))
    plain = bootstrap(logits, labels, resamples=20)
    grouped = bootstrap(logits, labels, resamples=20, groups=torch.arange(50))
    for metric, interval in plain.items():
        torch.testing.assert_close(
            grouped[metric].draws, interval.draws, rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.slow
def test_intervals_of_a_run_are_over_groups(tmp_path):
    files = files_of(tmp_path)
    words = ["import", "mine", "--store", tmp_path / "store"]
    for name in SIZES:
        for file in files[name]:
            words += [f"--{name}", file]
    done = here(*words)
    assert done.returncode == 0, done.stderr
    assert "none of whose groups is divided" in done.stdout
    options = {"imported": "mine", "store": tmp_path / "store", "address": "none"}
    out = tmp_path / "out"
    tune_calib.compare(["ce", "temperature"], **options, out=out)
    assert over_samples(load(out))["ece_low"].isna().all()  # bins do not know groups
    tune_calib.compare(["ce", "temperature"], **options, out=out, bootstrap=100)
    bank = open_import(
        FeatureBank, read_record("mine", Store(tmp_path / "store")), Store(tmp_path / "store")
    )
    test = bank.test()
    expected = bootstrap(test.logits.double()[None], test.labels, 100, groups=test.groups)
    of_ce = {
        row["spec_hash"] for row in read_table(out, "trials").to_pylist() if not row["posthoc"]
    }
    for row in read_table(out, "intervals").to_pylist():
        if row["spec_hash"] in of_ce and row["metric"] in ("nll", "accuracy"):
            assert row["lower"] == pytest.approx(float(expected[row["metric"]].lower[0]))
    assert over_samples(load(out))["ece_low"].notna().all()
