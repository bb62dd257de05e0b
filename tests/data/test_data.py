"""Data: splits, loaders and their errors, cache."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.data.archives import parquet
from tests.data.support import parts
from tune_calib.data import layouts
from tune_calib.data.cache import load_source
from tune_calib.data.decode import Format
from tune_calib.data.huggingface import lazy_images
from tune_calib.data.splits import load_development, load_test
from tune_calib.errors import DamagedFileError, DataNotFoundError, UserError
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.slots.data import DataSlot

REAL_CIFAR10 = Path(__file__).parents[3] / "shared" / "data" / "cifar10"

CIFAR10 = DataSlot(dataset="cifar10")


def pictures(samples: int, seed: int, size: int = 32) -> np.ndarray:
    shape = (samples, size, size, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels_of(samples: int) -> list[int]:
    return [i % 10 for i in range(samples)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    parquet(folder / "train.parquet", pictures(200, 0), labels_of(200))
    parquet(folder / "test.parquet", pictures(30, 1), labels_of(30))
    return folder


def is_one_line(error: pytest.ExceptionInfo[UserError]) -> bool:
    return "\n" not in str(error.value)


def test_digits_are_split_as_documented():
    development, test = load_development(DataSlot(), None), load_test(DataSlot(), None)
    order = np.random.RandomState(1).permutation(1797)
    assert test.indices.tolist() == order[:797].tolist()
    assert development.select.indices.tolist() == order[797:1047].tolist()
    assert development.calib.indices.tolist() == order[1047:1297].tolist()
    assert development.train.indices.tolist() == order[1297:].tolist()
    everything = torch.cat([s.indices for s in [*parts(development), test]])
    assert sorted(everything.tolist()) == list(range(1797))


def test_tiny_cifar_is_read_exactly_and_split_without_overlap(root: Path):
    development = load_development(CIFAR10, root)
    assert [len(s) for s in parts(development)] == [180, 10, 10]
    everything = torch.cat([s.indices for s in parts(development)])
    assert sorted(everything.tolist()) == list(range(200))
    pixels = torch.from_numpy(pictures(200, 0)).permute(0, 3, 1, 2)
    for split in parts(development):
        assert torch.equal(split.images, pixels[split.indices])
        assert torch.equal(split.labels, split.indices % 10)
    test = load_test(CIFAR10, root)
    assert torch.equal(test.images, torch.from_numpy(pictures(30, 1)).permute(0, 3, 1, 2))


def decoded(path: Path, channels: int = 3, size: int = 32) -> torch.Tensor:
    return lazy_images([path], Format(channels, size), 10).resident().images


def test_an_encoding_that_runs_a_program_of_the_system_is_refused(tmp_path: Path):
    path = parquet(tmp_path / "train.parquet", pictures(1, 0), [0], kind="EPS")
    with pytest.raises(DamagedFileError, match="row 0 is not an image") as error:
        decoded(path)
    assert is_one_line(error)


@pytest.mark.parametrize("place", ["", "cifar10", "plain_text", "cifar10/plain_text", "data"])
def test_folders_shards_and_the_column_image_are_located(tmp_path: Path, place: str):
    folder, pixels = tmp_path / place, pictures(40, 0)
    for shard in range(2):
        rows = slice(20 * shard, 20 * shard + 20)
        name = f"train-{shard:05d}-of-00002.parquet"
        parquet(folder / name, pixels[rows], labels_of(20), ("image", "label"))
    parquet(folder / "test-00000-of-00001.parquet", pixels[:10], labels_of(10), ("image", "label"))
    source = DATASETS["cifar10"].load(tmp_path)
    assert torch.equal(source.train.images[:], torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert source.train.indices.tolist() == list(range(40))


@pytest.mark.skipif(not REAL_CIFAR10.is_dir(), reason="the real CIFAR-100 is not here")
@pytest.mark.slow
def test_the_real_cifar100(tmp_path: Path):
    root = REAL_CIFAR10.parent
    fine, coarse = DataSlot(dataset="cifar100"), DataSlot(dataset="cifar100", labels="coarse")
    tests = [load_test(slot, root, tmp_path) for slot in (fine, coarse)]
    assert tests[0].labels.bincount().tolist() == [100] * 100
    assert tests[1].labels.bincount().tolist() == [500] * 20
    rows = pq.read_table(root / "cifar100" / "test.parquet", columns=["coarse_label"])
    assert tests[1].labels.tolist() == rows["coarse_label"].to_pylist()
    assert len(load_development(fine, root, tmp_path).train) == 45_000


def test_a_missing_root_explains_how_to_get_the_data():
    with pytest.raises(DataNotFoundError, match=r"`data_root`.*train\.parquet.*CIFAR10") as error:
        load_development(CIFAR10, None)
    assert is_one_line(error)


def test_truncated_parquet_is_refused(root: Path):
    path = root / "train.parquet"
    content = path.read_bytes()
    for length in (0, 3, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedFileError, match=str(path)) as error:
            load_development(CIFAR10, root)
        assert is_one_line(error)


def test_wrong_image_size_is_refused(root: Path):
    parquet(root / "train.parquet", pictures(20, 0, size=64), labels_of(20))
    with pytest.raises(DamagedFileError, match="64x64 pixels, expected 32x32"):
        load_development(CIFAR10, root)


def test_nulls_and_empty_files_are_refused(root: Path):
    kind = pa.struct([("bytes", pa.binary())])
    for images, labels, message in (
        ([None, *[{"bytes": b"a"}] * 9], labels_of(10), "without image bytes"),
        ([{"bytes": None}] * 10, labels_of(10), "without image bytes"),
        ([{"bytes": b"a"}], [None], "without image bytes"),
        ([], [], "no rows"),
    ):
        table = pa.table({"img": pa.array(images, kind), "label": pa.array(labels, pa.int64())})
        pq.write_table(table, root / "train.parquet")
        with pytest.raises(DamagedFileError, match=message):
            load_development(CIFAR10, root)


@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_a_wrong_torchvision_folder_is_one_line_and_never_unpickled(tmp_path: Path, below: str):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]:
        (folder / name).write_bytes(b"cos\nabort\n(tR.")
    with pytest.raises(DamagedFileError, match="checksums") as error:
        load_development(CIFAR10, tmp_path / below)
    assert is_one_line(error)


def test_torchvisions_folder_is_read(tmp_path: Path, monkeypatch):
    # A real one cannot be made small: torchvision compares the MD5 of every file.
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(b"")
    seen = []

    def stub(root: str, train: bool, download: bool = False):
        seen.append((root, train, download))
        return SimpleNamespace(data=pictures(20, int(train)), targets=labels_of(20))

    monkeypatch.setattr("torchvision.datasets.CIFAR10", stub)
    source = DATASETS["cifar10"].load(tmp_path)
    assert seen == [(str(tmp_path), True, False), (str(tmp_path), False, False)]
    assert torch.equal(
        source.train.images[3], torch.from_numpy(pictures(20, 1)[3]).permute(2, 0, 1)
    )
    assert source.test.labels.dtype == torch.int64


def test_the_cache_gives_the_same_and_is_used(root: Path, tmp_path: Path, monkeypatch):
    cache = tmp_path / "cache"
    first = load_development(CIFAR10, root, cache)
    assert [p.suffix for p in cache.glob("*.images")] == [".images"]
    monkeypatch.setattr(layouts, "lazy_images", lambda *_: pytest.fail("decoded again"))
    second = load_development(CIFAR10, root, cache)
    plain = parts(first) + parts(second)
    for a, b in zip(plain[:3], plain[3:], strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
    assert len(load_test(CIFAR10, root, cache)) == 30


@pytest.mark.parametrize("damage", ["empty", "truncated", "label", "pixel", "summary", "foreign"])
def test_a_damaged_cache_is_rebuilt(root: Path, tmp_path: Path, damage: str):
    cache, info = tmp_path / "cache", DATASETS["cifar10"]
    loaded = load_source(info, root, cache)
    expected, summary = loaded.train.images[:], loaded.summary
    (path,) = cache.glob("*.images")
    content = bytearray(path.read_bytes())
    if damage == "pixel":
        content[300] ^= 1
    if damage == "label":  # the first one, behind the images
        content[content.rindex(b"<i8", 0, content.rindex(b"<i8")) + 118] ^= 1
    if damage == "summary":
        content[content.rindex(b"<U") + 118] ^= 1
    contents = {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "foreign": b"\x93NUMPY\x01\x00 ",
    }
    path.write_bytes(contents.get(damage, content))
    source = load_source(info, root, cache)
    assert torch.equal(source.train.images[:], expected)
    assert torch.equal(source.test.labels, torch.arange(30) % 10)
    assert source.summary == summary
    assert list(cache.glob("*.images")) == [path]


def test_cache_and_root_may_be_read_only(root: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    load_development(CIFAR10, root, cache)
    copy = shutil.copytree(cache, tmp_path / "copy")
    copy.chmod(0o555)
    assert len(load_development(CIFAR10, root, copy).train) == 180
    copy.chmod(0o755)
