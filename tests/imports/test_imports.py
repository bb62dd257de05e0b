"""What is imported is checked, kept by its content, and stands where a network stands."""

import numpy as np
import pytest
import torch

from analysis.tidy import _variant
from tests.imports.files import FORMATS, features, head, outputs, write
from tests.support import drive, here, rows, run_of
from tune_calib.data.imported import SMALLEST, halves
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.imports import KIND, check_files, read_record, write_import
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.metrics.summary import measure_network_check, measure_network_check_in_parts
from tune_calib.spec.ladder import LADDERS, build_comparison, expand
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.settings import resolve_spec
from tune_calib.spec.slots.data import ImportedData
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.work.jobs import make_plan
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker

SIZES = {"train": 60, "select": 30, "calib": 40, "test": 50}


def splits_of(folder, make=outputs, names=("train", "select", "calib", "test"), kind="npz"):
    """A file for each split, as the arguments of ``check_files``."""
    files = {name: [] for name in SIZES}
    for seed, (name, samples) in enumerate(SIZES.items()):
        if name in names:
            files[name] = [str(write(folder / f"{name}.{kind}", **make(samples, seed=seed)))]
    return {**files, "head": []}


def with_features(folder, **options):
    own = str(write(folder / "head.npz", **head()))
    return {**splits_of(folder, features, **options), "head": [own]}


def bank_of(store, record):
    return FeatureBank(store.folder(KIND, record.digest))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


# --- what is kept


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_is_one_import(tmp_path, kind):
    store = Store(tmp_path / "store")
    npz = check_files(**splits_of(tmp_path)).record
    files = check_files(**splits_of(tmp_path, kind=kind))
    assert files.record == npz
    write_import("mine", files, store, replace=False)
    assert read_record("mine", store) == npz
    bank = bank_of(store, npz)
    for seed, (name, samples) in enumerate(SIZES.items()):
        if name == "train":  # logits alone: only how well it is fitted is kept of it
            continue
        split, wanted = getattr(bank, name)(), outputs(samples, seed=seed)
        assert np.array_equal(split.logits, wanted["logits"])
        assert np.array_equal(split.labels, wanted["labels"])
        assert split.features.shape == (samples, 0)


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_features_and_head_give_logits(tmp_path, dtype):
    store = Store(tmp_path / "store")

    def make(samples, seed):
        made = features(samples, seed=seed)
        return {**made, "features": made["features"].astype(dtype)}

    files = {**splits_of(tmp_path, make), "head": [str(write(tmp_path / "h.npz", **head()))]}
    given = check_files(**files)
    write_import("mine", given, store, replace=False)
    bank = bank_of(store, given.record)
    own = head()
    for split in (bank.train(), bank.select(), bank.calib(), bank.test()):
        wanted = split.features.numpy() @ own["weight"].T + own["bias"]
        assert np.allclose(split.logits, wanted, atol=1e-5)
    assert np.array_equal(bank.own_head()[0], own["weight"])
    assert bank.manifest["accuracy"]["train"] > 0.5


def test_probabilities_are_log_probabilities(tmp_path, store):
    def make(samples, seed):
        made = outputs(samples, seed=seed)
        probs = torch.from_numpy(made["logits"]).softmax(1).numpy()
        probs[0] = np.eye(4)[made["labels"][0]]
        return {"probabilities": probs, "labels": made["labels"]}

    files = check_files(**splits_of(tmp_path, make))
    write_import("mine", files, store, replace=False)
    logits = bank_of(store, files.record).test().logits
    assert torch.allclose(logits.softmax(1), torch.from_numpy(make(50, 3)["probabilities"]))
    assert float(logits.min()) == pytest.approx(np.log(SMALLEST))
    assert files.record.outputs == "probs"


def test_calib_is_cut_in_two_halves_of_equal_classes(tmp_path, store):
    files = splits_of(tmp_path, names=("train", "test"))
    files["calib"] = [str(write(tmp_path / "calib.npz", **outputs(41, seed=2)))]
    given = check_files(**files)
    write_import("mine", given, store, replace=False)
    assert given.record.is_cut
    bank = bank_of(store, given.record)
    select, calib = bank.select(), bank.calib()
    counts = [np.bincount(split.labels, minlength=4) for split in (select, calib)]
    assert np.abs(counts[0] - counts[1]).max() <= 1
    assert [given.record.select, given.record.calib] == [sum(own) for own in counts] == [21, 20]
    whole = {tuple(row) for row in outputs(41, seed=2)["logits"].tolist()}
    parts = [{tuple(row) for row in split.logits.tolist()} for split in (select, calib)]
    assert parts[0] | parts[1] == whole
    assert not parts[0] & parts[1]
    # Another import: who reads its numbers must know which samples they are of.
    given_both = check_files(**splits_of(tmp_path))
    assert given_both.record.digest != given.record.digest


@pytest.mark.parametrize("samples", [2, 3, 10, 101])
@pytest.mark.parametrize("classes", [2, 7, 200])
def test_halves_are_fixed_and_stratified(samples, classes):
    labels = torch.from_numpy(np.random.RandomState(0).randint(classes, size=samples))
    first, second = halves(labels)
    assert torch.equal(first, ~second)
    assert abs(int(first.sum()) - int(second.sum())) <= 1
    counts = [torch.bincount(labels[kept], minlength=classes) for kept in (first, second)]
    assert int((counts[0] - counts[1]).abs().max()) <= 1
    assert torch.equal(halves(labels)[0], first)


def test_the_network_check_of_parts_is_that_of_all():
    made = outputs(501, classes=7)
    logits, labels = torch.from_numpy(made["logits"]), torch.from_numpy(made["labels"])
    at_once = measure_network_check(logits.double(), labels)
    parts = measure_network_check_in_parts(zip(logits.split(100), labels.split(100), strict=True))
    assert parts == pytest.approx({name: float(value) for name, value in at_once.items()})


# --- names


def test_a_name_is_a_pointer(tmp_path, store):
    (tmp_path / "other").mkdir()
    one, other = (
        check_files(**splits_of(tmp_path)),
        check_files(**with_features(tmp_path / "other")),
    )
    write_import("mine", one, store, replace=False)
    write_import("mine", one, store, replace=False)
    write_import("second", one, store, replace=False)
    with pytest.raises(UserError, match="another import named mine"):
        write_import("mine", other, store, replace=False)
    assert read_record("mine", store) == one.record
    write_import("mine", other, store, replace=True)
    assert read_record("mine", store) == other.record
    assert read_record("second", store) == one.record
    assert bank_of(store, one.record).test()  # results of the old one stay as they are


@pytest.mark.parametrize("name", ["", "a/", "/a", "a//b", "../a", "a/..", "a b", ".a", "-a", "ä"])
def test_invalid_import_names_are_refused(store, name):
    with pytest.raises(UserError, match="is not a valid name of an import"):
        read_record(name, store)


def test_a_damaged_import_is_one_line_and_made_again(tmp_path, store):
    files = check_files(**splits_of(tmp_path))
    write_import("mine", files, store, replace=False)
    (store.folder(KIND, files.record.digest) / "test.arrow").write_bytes(b"half")
    with pytest.raises(UserError, match="import its files again"):
        read_record("mine", store)
    write_import("mine", files, store, replace=False)
    assert read_record("mine", store) == files.record


def test_two_classes_may_have_one_column_and_labels_that_are_true_or_false(tmp_path):
    def scores(shape, kind=np.int64):
        def make(samples, seed):
            made = outputs(samples, classes=2, seed=seed)
            column = made["logits"][:, 1].reshape(shape)
            return {"logits": column, "labels": made["labels"].astype(kind)}

        return make

    def pairs(samples, seed):
        made = outputs(samples, classes=2, seed=seed)
        made["logits"][:, 0] = 0
        return made

    expected = check_files(**splits_of(tmp_path, pairs)).record
    assert check_files(**splits_of(tmp_path, scores(-1))).record == expected
    assert check_files(**splits_of(tmp_path, scores((-1, 1), bool))).record == expected


def test_the_import_command_notes_labels_that_fit_the_logits_by_chance(tmp_path):
    def unrelated(samples, seed):
        made = outputs(3 * samples, seed=seed)
        return {**made, "labels": np.roll(made["labels"], 7)}

    files = splits_of(tmp_path, unrelated, names=("calib", "test"))
    words = [f"--{name}={path}" for name in ("calib", "test") for path in files[name]]
    run = here("import", "mine", *words, "--store", tmp_path / "store")
    assert run.returncode == 0, run.stderr
    for name in ("calib", "test"):
        assert f"note: {files[name][0]}:labels agree with the largest logits in" in run.stdout


# --- what is refused


def changed(role, how):
    def make(samples, seed):
        made = outputs(samples, seed=seed)
        made[role] = how(made[role])
        return made

    return make


def without(role):
    def make(samples, seed):
        made = outputs(samples, seed=seed)
        del made[role]
        return made

    return make


def as_probs(how):
    def make(samples, seed):
        made = outputs(samples, seed=seed)
        probs = torch.from_numpy(made.pop("logits")).softmax(1).numpy()
        return {**made, "probs": how(probs)}

    return make


def put(place, value):
    def how(values):
        values[place] = value
        return values

    return how


WRONG = {
    "transposed": (changed("logits", np.transpose), "has 4 samples, but there are 60 labels"),
    "a number a sample": (changed("logits", lambda v: v[:, 0]), "must be in 0 to 1, the 2 classes"),
    "whole numbers": (changed("logits", lambda v: v.astype("i8")), "floating-point"),
    "one class": (
        changed("logits", lambda v: v[:, :0]),
        r"at least 2 classes|is empty|must be \(samples, columns\)",
    ),
    "too few labels": (changed("labels", lambda v: v[:-1]), "but there are 59 labels"),
    "one-hot labels": (
        changed("labels", lambda v: np.eye(4, dtype=int)[v]), r"must be \(60,\), one per sample",
    ),
    "labels of floats": (changed("labels", lambda v: v.astype("f4")), "must be integers"),
    "a label too large": (changed("labels", put(3, 4)), "must be in 0 to 3, .* there is 4"),
    "labels from 1": (changed("labels", lambda v: v + 1), "must be in 0 to 3, .* there is 4"),
    "a label below 0": (changed("labels", put(3, -1)), "the 4 classes; there is -1"),
    "booleans for four classes": (changed("labels", lambda v: v > 1), "but there are 4 classes"),
    "labels of other columns": (
        lambda samples, seed: {
            **outputs(samples, seed=seed),
            "logits": np.pad(outputs(samples, seed=seed)["logits"], ((0, 0), (1, 2))),
        },
        r"npz:labels agree .* if they are raised by 1; number the classes from 0 as the columns",
    ),
    "NaN": (changed("logits", put((7, 1), np.nan)), "row 7 contains a value that is not finite"),
    "inf": (changed("logits", put((7, 1), np.inf)), "row 7 contains a value that is not finite"),
    "too large for float32": (
        changed("logits", lambda v: put((7, 1), 1e300)(v.astype("f8"))), "row 7 contains",
    ),
    "no labels": (without("labels"), "has no labels; arrays are recognised by these names"),
    "labels of text": (changed("labels", lambda v: v.astype("U2")), "text; labels must be"),
    "no logits": (without("logits"), "has no logits or probabilities"),
    "no sums of one": (as_probs(lambda p: 0.9 * p), "row 0 is not a vector of probabilities"),
    "a probability below 0": (as_probs(lambda p: put(5, [1.5, -0.5, 0, 0])(p)), "row 5 is not a"),
    "logits named probabilities": (as_probs(lambda p: np.log(p)), "is not a vector of prob"),
    "probabilities named logits": (
        lambda samples, seed: {
            **outputs(samples, seed=seed),
            "logits": as_probs(np.asarray)(samples, seed)["probs"],
        },
        "the rows sum to one",
    ),
    "probabilities named logits, as bfloat16 rounds them": (
        lambda samples, seed: {
            **outputs(samples, seed=seed),
            "logits": torch.from_numpy(as_probs(np.asarray)(samples, seed)["probs"])
            .bfloat16().float().numpy(),
        },
        "the rows sum to one",
    ),
    "probabilities named logits, one row of zeros": (
        lambda samples, seed: {
            **outputs(samples, seed=seed),
            "logits": put(5, 0)(as_probs(lambda p: p.round(2))(samples, seed)["probs"]),
        },
        "the rows sum to one",
    ),
    "both": (
        lambda samples, seed: {
            **outputs(samples, seed=seed), **as_probs(np.asarray)(samples, seed),
        },
        "has probabilities beside logits or features",
    ),
    "features without head": (
        lambda samples, seed: {**outputs(samples, seed=seed), **features(samples, seed=seed)},
        "which need the last layer",
    ),
    "nothing": (lambda samples, seed: {k: v[:0] for k, v in outputs(9).items()}, "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_wrong_files_are_one_line(tmp_path, how):
    make, told = WRONG[how]
    with pytest.raises(UserError, match=told) as error:
        check_files(**splits_of(tmp_path, make))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("absent", ["calib", "test"])
def test_a_missing_split_is_one_line(tmp_path, absent):
    names = [name for name in SIZES if name != absent]
    with pytest.raises(UserError, match=f"`{absent}` is missing"):
        check_files(**splits_of(tmp_path, names=names))


def unequal(folder, **other):
    files = splits_of(folder)
    return {**files, **{k: [str(write(folder / "other.npz", **v))] for k, v in other.items()}}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"test": outputs(50, classes=5, seed=3)}, "`train` and `test` differ in classes: 4 and 5"),
        ({"test": as_probs(np.asarray)(50, 3)}, "differ in outputs: logits and probs"),
        ({"test": outputs(40, seed=2)}, "`calib` and `test` share 40 identical samples"),
        ({"train": outputs(40, seed=2)}, "`train` and `calib` share 40 identical samples"),
        ({"head": head()}, "`head` is used with features only"),
    ],
)
def test_mismatched_splits_are_refused(tmp_path, other, message):
    with pytest.raises(UserError, match=message):
        check_files(**unequal(tmp_path, **other))


def saturated(probs):
    return np.eye(4, dtype="f4")[probs.argmax(1)]


def test_equal_rows_of_a_saturated_softmax_are_no_shared_samples(tmp_path):
    assert check_files(**splits_of(tmp_path, as_probs(saturated))).record.outputs == "probs"


def of_two_classes(samples, seed):
    """Probabilities of a few digits."""
    chance = np.random.RandomState(seed)
    first = np.round(chance.beta(0.5, 0.5, 30 * samples), 4).astype("f4")
    return {"probs": np.stack([first, 1 - first], 1), "labels": chance.randint(2, size=len(first))}


def test_probabilities_of_few_digits_are_equal_by_chance(tmp_path):
    files = splits_of(tmp_path, of_two_classes)
    rows = [set(np.load(files[name][0])["probs"][:, 0].tolist()) for name in ("calib", "test")]
    assert len(rows[0] & rows[1]) > 100
    assert check_files(**files).record.outputs == "probs"


@pytest.mark.parametrize("make", [as_probs(saturated), of_two_classes, features, outputs])
@pytest.mark.parametrize("two", ["train", "test"])
def test_the_same_file_for_two_splits_is_refused(tmp_path, make, two):
    files = splits_of(tmp_path, make)
    if make is features:
        files["head"] = [str(write(tmp_path / "head.npz", **head()))]
    with pytest.raises(UserError, match=r"`(train|calib)` and `(calib|test)` share"):
        check_files(**{**files, two: files["calib"]})


@pytest.mark.parametrize("make", [of_two_classes, outputs])
@pytest.mark.parametrize(("calib", "test"), [(2, 1), (1, 2), (2, 2), (3, 2)])
def test_repeated_shared_samples_are_detected(tmp_path, make, calib, test):
    shared, others = make(200, seed=8), make(200, seed=9)
    order = np.random.RandomState(0).permutation(len(shared["labels"]))
    repeated = {k: np.concatenate([v] * calib) for k, v in shared.items()}
    # In another order, as float64, and with as many samples of its own.
    part = {
        k: np.concatenate([*[v[order].astype("f8")] * test, others[k]]) for k, v in shared.items()
    }
    part["labels"] = part["labels"].astype(int)
    files = unequal(tmp_path, calib=repeated)
    files |= {"train": [], "select": [str(write(tmp_path / "select.npz", **make(99, seed=7)))]}
    files["test"] = [str(write(tmp_path / "test.npz", **part))]
    with pytest.raises(UserError, match="`calib` and `test` share"):
        check_files(**files)


@pytest.mark.parametrize(("calib", "test"), [(60, 1), (1, 60), (60, 60)])
def test_a_split_that_repeats_all_of_its_samples_often_shares_them(tmp_path, calib, test):
    files = {"train": [], "select": [str(write(tmp_path / "select.npz", **outputs(99, seed=7)))]}
    whole, further = outputs(40, seed=8), outputs(20, seed=9)
    for name, times in {"calib": calib, "test": test}.items():
        # Half of the samples of test are not in calib.
        parts = [whole, further] if name == "test" else [whole]
        repeated = {k: np.concatenate([part[k] for part in times * parts]) for k in whole}
        files[name] = [str(write(tmp_path / f"{name}.npz", **repeated))]
    with pytest.raises(UserError, match="`calib` and `test` share 40"):
        check_files(**files, head=[])


def of_trees(samples, seed):
    """Probabilities of an ensemble of 100 trees, a multiple of .01."""
    chance = np.random.RandomState(seed)
    first = chance.binomial(100, chance.beta(0.5, 0.5, 5 * samples)) / 100
    return {"probs": np.stack([first, 1 - first], 1), "labels": chance.randint(2, size=len(first))}


def test_probabilities_of_trees_are_no_copies(tmp_path):
    files = splits_of(tmp_path, of_trees, ("calib", "test"))
    assert check_files(**files).record.is_cut
    # Twice as many samples of the same distribution are no copies either.
    more = {
        k: np.concatenate([of_trees(40, 8)[k], of_trees(40, 9)[k]]) for k in ("probs", "labels")
    }
    files["calib"] = [str(write(tmp_path / "more.npz", **more))]
    assert check_files(**files).record.is_cut


@pytest.mark.parametrize("times", [2, 3])
def test_a_split_of_copies_is_not_cut_in_two(tmp_path, times):
    whole = outputs(40, seed=2)
    copies = {k: np.concatenate([v] * times) for k, v in whole.items()}
    files = unequal(tmp_path, calib=copies)
    assert check_files(**files).record.calib == 40 * times
    with pytest.raises(UserError, match=f"40 samples {times} times.*give `select`"):
        check_files(**{**files, "select": []})


def test_a_part_of_another_split_is_refused_though_some_rows_are_equal_by_chance(tmp_path):
    files = splits_of(tmp_path, of_two_classes)
    calib, test = (dict(np.load(files[name][0])) for name in ("calib", "test"))
    part = {k: np.concatenate([test[k], calib[k][:600]]) for k in test}
    files["test"] = [str(write(tmp_path / "both.npz", **part))]
    with pytest.raises(UserError, match="`calib` and `test` share"):
        check_files(**files)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weight": head()["weight"].T}, "weight is .6, 4. and bias"),
        ({"bias": head()["bias"]}, "has no weight"),
        ({"weight": head(width=5)["weight"]}, "has 6 features, but the weight"),
        ({"weight": put((0, 0), np.nan)(head()["weight"])}, "not finite"),
        ({"weight": np.float32(1)}, r"weight is \(\) and bias"),
        ({"weight": head()["weight"], "bias": np.ones(3, "f4")}, r"bias \(3,\)"),
    ],
)
def test_wrong_heads_are_refused(tmp_path, arrays, message):
    arrays = {**({"bias": head()["bias"]} if "weight" in arrays else {}), **arrays}
    files = {**with_features(tmp_path), "head": [str(write(tmp_path / "own.npz", **arrays))]}
    with pytest.raises(UserError, match=message):
        check_files(**files)


def test_logits_that_are_not_those_of_the_head(tmp_path):
    def make(samples, seed):
        made, own = features(samples, seed=seed), head()
        logits = made["features"] @ own["weight"].T + own["bias"]
        return {**made, "logits": logits + (seed == 2) * np.eye(4, dtype="f4")[0]}

    files = {**splits_of(tmp_path, make), "head": [str(write(tmp_path / "h.npz", **head()))]}
    with pytest.raises(UserError, match="`calib`: the logits of row 0 differ from those of `head`"):
        check_files(**files)


# --- it stands where a network stands


def request_for(name, store, **slots):
    request = ResolvedRequest({"data": {"imported": name}, **slots}).with_recipe()
    return resolve_files(request, None, store.root)


def run(folder, trials, store, **provenance):
    plan, run_fields = make_plan(trials, set()), {**run_of(folder, store), **provenance}
    for kind, works in ((NetworkWorker, plan.networks), (HeadWorker, plan.head_batches)):
        for work in works:
            actor = kind({"job": work.config(), "run": run_fields})
            drive(actor)
            actor.cleanup()
    return {row["rung_label"]: row for row in rows(folder)}


PIPELINES = ["ce", "temperature", "retrain", "mac_cal+temperature"]


def test_heads_and_posthoc_run_on_features(tmp_path, store):
    write_import("mine", check_files(**with_features(tmp_path)), store, replace=False)
    request = request_for("mine", store, head={"epochs": 2})
    trials = expand(build_comparison(PIPELINES), request)
    assert {trial.spec.head.augment for trial in trials if trial.spec.head} == {"none"}
    found = run(tmp_path / "out", trials, store)
    assert {row["status"] for row in found.values()} == {"done"}
    assert found["ce"]["test/accuracy"] > 0.5
    assert found["retrain"]["base/train/accuracy"] == found["ce"]["train/accuracy"] > 0.5
    assert found["temperature"]["test/accuracy"] == found["ce"]["test/accuracy"]
    assert found["temperature"]["test/nll"] != found["ce"]["test/nll"]
    assert {row["dataset"] for row in found.values()} == {"imported"}


def test_val_ratio_knows_the_accuracy_of_train(tmp_path, store):
    write_import("mine", check_files(**with_features(tmp_path)), store, replace=False)
    request = request_for("mine", store, head={"epochs": 1, "gamma": "val_ratio"})
    results = run(tmp_path / "out", expand(build_comparison(["mac_cal"]), request), store)
    assert results["mac_cal"]["status"] == "done"


@pytest.mark.parametrize("names", [("calib", "test"), ("select", "calib", "test"), tuple(SIZES)])
def test_logits_alone_suffice_for_post_hoc_methods(tmp_path, names):
    store = Store(tmp_path / "store")
    write_import("mine", check_files(**splits_of(tmp_path, names=names)), store, replace=False)
    request = request_for("mine", store)
    results = run(tmp_path / "out", expand(build_comparison(PIPELINES[:2]), request), store)
    assert {row["status"] for row in results.values()} == {"done"}
    knows_train = results["ce"].get("train/accuracy") is not None
    assert knows_train is ("train" in names)
    with pytest.raises(UserError, match="head method 'retrain' is trained on features of train"):
        expand(build_comparison(["ce", "retrain"]), request)


def test_a_search_reads_no_test(tmp_path, store):
    write_import("mine", check_files(**with_features(tmp_path)), store, replace=False)
    request = request_for("mine", store, head={"epochs": 1})
    results = run(
        tmp_path / "out", expand(build_comparison(PIPELINES), request), store, is_search=True
    )
    assert all(row.get("test/ece") is None for row in results.values())


def test_a_network_and_its_exported_features_give_the_same_numbers(tmp_path, store):
    """The bank of a trained network, written out and imported: every number is the network's."""
    slots = {"data": {"train_fraction": 0.3}, "network": {"epochs": 1, "augment": "none"}}
    settings = {**slots, "head": {"epochs": 2, "augment": "none"}}
    trials = expand(build_comparison(PIPELINES), ResolvedRequest(settings))
    plan = make_plan(trials, set())
    for kind, works in ((NetworkWorker, plan.networks), (HeadWorker, plan.head_batches)):
        for work in works:
            actor = kind({"job": work.config(), "run": run_of(tmp_path / "own", store)})
            drive(actor)
            actor.cleanup()
    trained = {row["rung_label"]: row for row in rows(tmp_path / "own")}
    bank = FeatureBank(store.folder("banks", bank_key(trials[0].spec, None).identity))
    files = {}
    for name in SIZES:
        split = getattr(bank, name)()
        arrays = {k: getattr(split, k).numpy().copy() for k in ("features", "logits", "labels")}
        files[name] = [str(write(tmp_path / f"{name}.npz", **arrays))]
    weight, bias = bank.own_head()
    files["head"] = [str(write(tmp_path / "h.npz", weight=weight.numpy(), bias=bias.numpy()))]
    write_import("mine", check_files(**files), store, replace=False)
    request = request_for("mine", store, head={"epochs": 2})
    imported = run(tmp_path / "imported", expand(build_comparison(PIPELINES), request), store)
    metrics = [k for k, v in trained["ce"].items() if k.startswith(("select/", "test/")) and v]
    for name in PIPELINES:
        assert {k: imported[name][k] for k in metrics} == {k: trained[name][k] for k in metrics}
    assert imported["ce"]["train/accuracy"] == pytest.approx(trained["ce"]["train/accuracy"])


# --- what is asked


def record(**changes):
    whole = {
        "digest": "0" * 16, "classes": 4, "width": 6, "train": 60, "select": 30, "calib": 40,
        "test": 50, "is_cut": False, "outputs": "head",
    }  # fmt: skip
    return {**whole, **changes}


def test_identity_is_the_content_and_not_the_name(tmp_path, store):
    files = check_files(**splits_of(tmp_path))
    write_import("mine", files, store, replace=False)
    write_import("yours", files, store, replace=False)
    mine, yours = (resolve_spec(request_for(name, store).overrides) for name in ("mine", "yours"))
    assert mine.hash == yours.hash
    assert "mine" not in mine.canonical_json()
    assert mine == TrialSpec.build(**mine.model_dump())
    assert isinstance(mine.data.imported, ImportedData)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"data": {"label_noise": 0.1}}, "label_noise needs images"),
        ({"data": {"split": "whole"}}, "split needs images"),
        ({"data": {"holdout": "test"}}, "holdout needs images"),
        ({"data": {"dataset": "digits"}}, "go together"),
        ({"data": {"dataset": "imported", "imported": None}}, "give the name of an import"),
        ({"network": {"epochs": 3}}, "network.epochs: imported data have no network"),
        ({"network": {"backbone": "small_cnn"}}, "network.backbone: imported data"),
        ({"network": {"lr": 0.1}}, "network.lr: imported data"),
        ({"network": {"weights": "w.safetensors"}}, "network.weights: imported data"),
        ({"head": {"method": "retrain", "augment": "standard"}}, "one clean view"),
        ({"head": {"method": "retrain", "bn_mode": "train"}}, "one clean view"),
    ],
)
def test_requests_that_need_images_or_a_network_are_refused(requested, message):
    slots = {**requested, "data": {"imported": record(), **requested.get("data", {})}}
    with pytest.raises(UserError, match=message):
        resolve_spec(ResolvedRequest(slots).overrides)


@pytest.mark.parametrize(
    "slots",
    [
        {"data": {"dataset": "imported"}},
        {"data": {"imported": record()}},
        {"data": {"dataset": "imported", "imported": record()}},
        {"network": {"backbone": "imported", "epochs": 0}},
    ],
)
def test_an_incomplete_import_is_refused(slots):
    with pytest.raises(UserError, match="go together"):
        TrialSpec.build(**{"network": {}, **slots})


@pytest.mark.parametrize("ladder", sorted(LADDERS))
def test_ladders_run_as_far_as_they_need_no_network(ladder):
    request = ResolvedRequest({"data": {"imported": record()}}).with_recipe()
    try:
        trials = expand(LADDERS[ladder], request)
    except UserError as error:
        assert "nothing is left to run" in str(error)  # noqa: PT017
        return
    assert all(trial.spec.network.is_frozen for trial in trials)
    assert all(trial.spec.head.augment == "none" for trial in trials if trial.spec.head)


def test_decoupling_leaves_out_what_runs_the_network():
    request = ResolvedRequest({"data": {"imported": record()}}).with_recipe()
    labels = {trial.label for trial in expand(LADDERS["decoupling"], request)}
    assert labels
    assert not any("BN train" in label for label in labels)


@pytest.mark.parametrize("name", ["mac_cal", "decoupling"])
def test_heads_of_a_ladder_need_features(name):
    request = ResolvedRequest({"data": {"imported": record(width=0)}}).with_recipe()
    with pytest.raises(UserError, match="has no features"):
        expand(LADDERS[name], request)


def test_an_unknown_import_names_the_import_command(store):
    with pytest.raises(UserError, match="tune-calib import mine"):
        request_for("mine", store)


# --- the command


def test_the_import_command_prints_its_decisions(tmp_path):
    files = splits_of(tmp_path, as_probs(np.asarray), names=("calib", "test"))
    arguments = [
        "import", "mine", "--calib", files["calib"][0], "--test", files["test"][0],
        "--store", tmp_path / "store",
    ]  # fmt: skip
    done = here(*arguments)
    assert done.returncode == 0, done.stderr
    for told in ("log-probabilities", "halves of --calib", "4 classes", "head methods need"):
        assert told in done.stdout
    # After a success nothing may read like an error: what is left out is a note.
    *_, without_train, without_heads, following = done.stdout.splitlines()
    assert without_train.startswith("note: without --train")
    assert without_heads.startswith("note: post-hoc methods can use it")
    words = ["compare", "ce", "temperature", "--imported", "mine", "--store", tmp_path / "store"]
    assert following == f"next: tune-calib {' '.join(map(str, words))}"
    assert here(*arguments).stdout == done.stdout


@pytest.mark.parametrize("how", ["NaN", "a label too large", "no sums of one", "transposed"])
def test_the_command_ends_with_2_and_writes_nothing(tmp_path, how):
    files = splits_of(tmp_path, WRONG[how][0])
    options = [word for name in SIZES for word in (f"--{name}", files[name][0])]
    done = here("import", "mine", *options, "--store", tmp_path / "store")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "store").exists()


def test_imported_excludes_a_data_set(tmp_path):
    done = here("compare", "ce", "--imported", "mine", "--dataset", "cifar10", "--out", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "takes the place of --dataset" in done.stderr


def test_rows_of_two_imports_are_two_columns():
    slots = [{"dataset": "imported", "imported": record(digest=each * 16)} for each in "ab"]
    asked = [resolve_spec(ResolvedRequest({"data": slot}).overrides) for slot in slots]
    assert [_variant(spec.data.model_dump_json()) for spec in asked] == [
        "#" + "a" * 16,
        "#" + "b" * 16,
    ]


def test_labels_of_text_in_a_parquet_file_are_named_as_such(tmp_path):
    arrays = outputs(20)
    names = np.array(["ant", "bee", "cow", "dog"])[arrays["labels"]]
    file = write(tmp_path / "x.parquet", logits=arrays["logits"], labels=names)
    with pytest.raises(
        UserError, match=r"x\.parquet:labels contains text; labels must be integers"
    ):
        check_files((), ("none",), (str(file),), (str(file),), head=())
