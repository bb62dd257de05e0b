"""Rows of two copies of a data set, or of two versions of the numbers, are never mixed."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.data.archives import both_parts, parquet, pixels_of
from tests.support import here, rows
from tests.tuning.test_reuse import copy_found
from tune_calib.data.splits import load_development
from tune_calib.errors import RefusedError, UserError
from tune_calib.files.store import Store
from tune_calib.results.tables import NUMBERS, SCHEMAS, read_table, write_results
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import canonical_json
from tune_calib.tuning.folder import Provenance, done
from tune_calib.tuning.reuse import Copies
from tune_calib.tuning.work.jobs import make_plan
from tune_calib.tuning.work.workers import NetworkWorker

QUICK = {"backbone": "small_cnn", "epochs": 1, "augment": "none"}
ASKED = ResolvedRequest(
    {"data": {"dataset": "cifar10", "train_fraction": 1.0}, "network": QUICK},
    Seeds((0, 1), (0, 1), is_paired=True),
).with_recipe("quick")
PLANNED = expand(build_comparison(("ce",)), ASKED)
SLOT = PLANNED[0].spec.data
KEY = canonical_json(SLOT)


def first_copy(root):
    return both_parts(root, 10, 20)


def same_images(root):
    """The same pixels in files that are not the same."""
    first_copy(root)
    for path in root.iterdir():
        pq.write_table(pq.read_table(path), path, compression="none", row_group_size=7)
    return root


def other_images(root):
    """A copy of which one value of the last test image differs."""
    first_copy(root)
    labels = list(range(10))
    images = [pixels_of(10**6 + row) for row in labels]
    images[-1][5, 5, 0] ^= np.uint8(1)
    parquet(root / "test.parquet", images, labels)
    return root


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    made = {"first": first_copy, "same": same_images, "other": other_images}
    return {name: make(folder / name) for name, make in made.items()}


@pytest.fixture
def copies(roots, tmp_path):
    store = Store(tmp_path / "store")
    return {name: Copies.read([PLANNED[0].spec], root, store) for name, root in roots.items()}


def written(out, trials=PLANNED, **own):
    nothing = dict.fromkeys(SCHEMAS["trials"].names)
    for index, trial in enumerate(trials):
        told = {"spec_hash": trial.spec.hash, "network_id": trial.spec.network_id, "data": KEY,
                "dataset": "cifar10", "status": "done", "test/ece": 0.1}  # fmt: skip
        write_results(out, f"trial-{index}", {"trials": [nothing | told | own]})
    (out / "sweep.json").write_text("{}")


def test_the_digest_is_that_of_the_images_and_not_of_the_files(roots, tmp_path):
    digest = {name: load_development(SLOT, root).digest for name, root in roots.items()}
    assert digest["first"] == digest["same"] != digest["other"]
    cached = [load_development(SLOT, roots["first"], tmp_path).digest for _ in range(2)]
    assert cached == [digest["first"]] * 2


def test_a_folder_goes_on_with_the_images_that_it_began_with(copies, tmp_path):
    digest = copies["first"].digests[KEY]
    written(tmp_path / "out", data_digest=digest, numbers=NUMBERS)
    copies["same"].refuse_other(tmp_path / "out")
    with pytest.raises(UserError, match="cannot be mixed") as told:
        copies["other"].refuse_other(tmp_path / "out")
    for word in (digest, copies["other"].digests[KEY], "`out`", "`data_root`"):
        assert word in str(told.value)


def test_a_folder_of_a_version_with_other_numbers_is_refused(copies, tmp_path):
    digest = copies["first"].digests[KEY]
    written(tmp_path / "out", data_digest=digest, numbers=NUMBERS + 1)
    with pytest.raises(UserError, match="with different numbers"):
        copies["first"].refuse_other(tmp_path / "out")


def test_a_folder_with_rows_of_unknown_images_is_refused(copies, tmp_path):
    written(tmp_path / "out", PLANNED[:1], numbers=NUMBERS)
    with pytest.raises(UserError, match=r"another copy of cifar10 \(None\)"):
        copies["first"].refuse_other(tmp_path / "out")


def test_rows_are_reused_only_for_the_same_images(copies, tmp_path):
    digest = copies["first"].digests[KEY]
    written(tmp_path / "a" / "first", data_digest=digest, numbers=NUMBERS)
    own = tmp_path / "b" / "own"
    asked = (PLANNED, own, tmp_path, "second", "compare", ())
    with pytest.raises(UserError, match=r"another copy of cifar10 .*`data_root`"):
        copy_found(*asked, copies["other"])
    assert done(own) == set()
    copy_found(*asked, copies["same"])
    assert done(own) == {trial.spec.hash for trial in PLANNED}
    assert set(read_table(own, "trials")["data_digest"].to_pylist()) == {digest}


@pytest.mark.parametrize("changed", [{"numbers": NUMBERS + 1}, {"data_digest": None}])
def test_rows_of_other_numbers_or_of_unknown_images_are_made_again(changed, copies, tmp_path):
    digest = copies["first"].digests[KEY]
    written(tmp_path / "a" / "first", **{"data_digest": digest, "numbers": NUMBERS, **changed})
    copy_found(PLANNED, tmp_path / "b" / "own", tmp_path, "s", "compare", (), copies["first"])
    assert done(tmp_path / "b" / "own") == set()


def test_a_worker_refuses_another_copy_than_that_of_the_driver(roots, copies, tmp_path):
    run = Provenance(
        str(tmp_path / "out"), str(tmp_path / "store"), str(roots["other"]), git_revision=None,
        digests=copies["first"].digests,
    )  # fmt: skip
    (trial,) = make_plan(PLANNED[:1], set()).networks
    with pytest.raises(RefusedError, match=r"cifar10: `data_root` .* of the driver"):
        NetworkWorker({"run": run.plain(), "job": trial.config()})


WORDS = [
    "--dataset", "cifar10", "--recipe", "quick", "--backbone", "small_cnn", "--epochs", "1",
    "--set", "network.augment=none", "--set", "data.train_fraction=1",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_neither_comparison_nor_search_is_continued_on_another_copy(roots, tmp_path, refusal):
    data = shutil.copytree(roots["first"], tmp_path / "data")
    compare = ["compare", "ce", *WORDS, "--data-root", data, "--out", tmp_path / "compare"]
    search = ["search", "ls", *WORDS, "--data-root", data, "--out", tmp_path / "search"]
    for command in (compare, [*search, "--trials", 1]):
        ended = here(*command)
        assert ended.returncode == 0, ended.stderr
    digest = load_development(DataSlot(dataset="cifar10"), data).digest
    for name in ("compare", "search"):
        assert {row["data_digest"] for row in rows(tmp_path / name)} == {digest}
    # A store of its own, so that no network of the first copy warns of it.
    shutil.rmtree(tmp_path / "compare" / "store")
    shutil.rmtree(tmp_path / "search" / "store")
    shutil.rmtree(data)
    shutil.copytree(roots["other"], data)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/trials/*")}
    assert "another copy of cifar10" in refusal(*compare, "--seeds", 2)
    for command in (
        [*search, "--trials", 2],
        ["resume", tmp_path / "search", "--trials", 2],
        ["evaluate", tmp_path / "search", "--seeds", 1],
    ):
        message = refusal(*command)
        assert "another copy of cifar10" in message
        assert "--data-root" in message
    assert {path: path.read_bytes() for path in tmp_path.glob("*/trials/*")} == before
