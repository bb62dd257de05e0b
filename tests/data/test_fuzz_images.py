"""A fuzz of folders and Parquet files: the right pixels and labels, or one line that says why."""

import contextlib
import io
import json
import random
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from tests.data.support import parts, scanned_slot
from tests.support import sample
from tune_calib.data.splits import load_development, load_test
from tune_calib.errors import UserError

SIDE = 8
TURNS = {
    1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270,
}  # fmt: skip
LOOKS = {
    1: [("L", "PNG"), ("LA", "PNG"), ("L", "TIFF")],
    3: [("RGB", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("P", "GIF"), ("CMYK", "TIFF"),
        ("RGB", "WEBP"), ("RGBX", "TIFF"), ("RGB", "TIFF")],
}  # fmt: skip
ALWAYS = ["", "", "", "transparent", "float", "frames", "size", "mixed"]
FAULTS = {
    "imagefolder": [*ALWAYS, "broken link", "no class folder", "class of test alone",
                    "no such class"],
    "parquet": [*ALWAYS, "missing shard", "shard twice", "two totals", "two kinds",
                "class of test alone", "names in one part", "label column", "no such class"],
}  # fmt: skip


class Case:
    """A data set below a root: its images, where each belongs, and what is wrong with it."""

    def __init__(self, seed: int, root: Path) -> None:
        self.draw, self.root = random.Random(seed), root
        self.kind = self.draw.choice(list(FAULTS))
        self.fault = self.draw.choice(FAULTS[self.kind])
        self.channels = self.draw.choice([1, 3])
        names = [str(n) for n in range(1, 13)] if seed % 2 else ["ox", "Bee", "cat", "éland", "a b"]
        self.names = self.draw.sample(names, self.draw.randint(2, 4))
        self.settings: dict = {}
        self.number = 0

    def pixels(self) -> np.ndarray:
        """Draw an image without symmetry; of few colours, so that a palette holds it."""
        self.number += 1
        rng = np.random.default_rng([self.draw.randrange(2**30), self.number])
        shape = (SIDE, SIDE) if self.channels == 1 else (SIDE, SIDE, 3)
        return rng.integers(0, 256, shape, dtype=np.uint8)

    def encoded(self, pixels: np.ndarray, fault: str = "") -> tuple[bytes, str]:
        """Encode an image in one of the ways that look alike, and return its suffix."""
        mode, kind = self.draw.choice(LOOKS[self.channels])
        turn = 1 if kind in ("GIF",) else self.draw.choice(list(TURNS))
        image = Image.fromarray(pixels)
        options: dict = {"lossless": True} if kind == "WEBP" else {}
        if mode == "P":
            image = image.quantize(256)
            assert np.array_equal(np.asarray(image.convert("RGB")), pixels)
        else:
            image = image.convert(mode)
        if fault == "transparent":
            image, kind, options = Image.fromarray(pixels).convert("RGBA"), "PNG", {}
            image.putpixel((1, 2), (9, 9, 9, 0))
        elif fault == "float":
            image, kind, options = Image.fromarray(pixels).convert("F"), "TIFF", {}
        elif fault == "frames":
            other = Image.fromarray(255 - pixels)
            image, kind = Image.fromarray(pixels), "TIFF"
            options = {"save_all": True, "append_images": [other]}
        elif fault == "size":
            image, kind = Image.fromarray(pixels).resize((SIDE, SIDE + 1)), "PNG"
            options = {}
        elif fault == "mixed":
            mixed = np.arange(SIDE * SIDE * 3, dtype=np.uint8).reshape(SIDE, SIDE, 3)
            image = Image.fromarray(mixed[..., 0] if self.channels == 3 else mixed)
            kind, options = "PNG", {}
        elif TURNS[turn] is not None:
            image = image.transpose(TURNS[turn])
        if not fault and turn > 1:
            exif = Image.Exif()
            exif[274] = turn
            options["exif"] = exif
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        return buffer.getvalue(), kind.lower().replace("jpeg", "jpg")

    def images(self, part: str) -> list[tuple[str, np.ndarray, bytes, str]]:
        """Return the images of a part with their classes, one of them with the fault."""
        rows = []
        for name in self.names:
            for row in range(12 if part == "train" else 3):
                pixels = self.pixels()
                is_faulty = self.fault in ALWAYS[3:] and (part, row) == ("train", 2)
                rows.append((name, pixels, *self.encoded(pixels, self.fault * is_faulty)))
        return rows


def written_folder(case: Case) -> dict[str, list]:
    """Write a folder with hidden and linked folders; return its images in order."""
    away, expected = case.root.parent / "away", {}
    for part in ("train", "test"):
        rows = []
        for number, (name, pixels, content, suffix) in enumerate(case.images(part)):
            below = case.draw.choice(["", "", "sub/"])
            file = case.root / part / name / below / f"{number:03d}.{suffix}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            rows.append((file, name, pixels))
        for name in case.names:
            folder, away_folder = case.root / part / name, away / part / name
            chance = case.draw.random()
            if chance < 0.3:  # the folder of a class is a link
                shutil.move(folder, away_folder)
                folder.symlink_to(away_folder)
            elif chance < 0.6 and (folder / "sub").is_dir():
                shutil.move(folder / "sub", away_folder)
                (folder / "sub").symlink_to(away_folder)
            if case.draw.random() < 0.3:  # copies that no listing shows
                hidden = folder / ".cache"
                hidden.mkdir()
                shutil.copy(rows[0][0], hidden / rows[0][0].name)
        expected[part] = [(name, pixels) for _, name, pixels in sorted(rows, key=lambda r: r[0])]
        if case.draw.random() < 0.3:
            shutil.copytree(case.root / part / case.names[0], case.root / part / ".trash")
    folder = case.root / "train" / case.names[0]
    if case.fault == "broken link":
        (folder / "x.png").symlink_to(away / "nothing.png")
    elif case.fault == "no class folder":
        Image.new("L", (SIDE, SIDE)).save(case.root / "train" / "x.png")
    elif case.fault == "class of test alone":
        shutil.copytree(case.root / "test" / case.names[0], case.root / "test" / "other")
    case.settings["classes"] = sorted(case.names)
    return expected


def written_parquet(case: Case) -> dict[str, list]:
    """Write shards whose class names stand in another order in each; return their images."""
    has_names, expected = case.draw.random() < 0.6, {}
    fault, first = case.fault, list(case.names)
    if fault in ("class of test alone", "names in one part"):
        has_names = True
    for part in ("train", "test"):
        rows = case.images(part)
        # All images are resized if the first is not square, so its place matters.
        if part == "test" or (fault in ALWAYS[3:] and fault != "size"):
            case.draw.shuffle(rows)
        count = case.draw.randint(2, 3) if "shard" in fault or "two" in fault else 1
        ends = np.linspace(0, len(rows), count + 1).astype(int)
        for shard, (start, end) in enumerate(pairwise(ends)):
            order = case.draw.sample(case.names, len(case.names)) if has_names else case.names
            if has_names and (part, shard) == ("train", 0):
                first = order
            names = [*order]
            labels = [order.index(row[0]) for row in rows[start:end]]
            if part == "test" and fault == "class of test alone":
                names[labels[0]] = "other"
            column = "fine_label" if part == "test" and fault == "label column" else "label"
            images = [{"bytes": row[2], "path": None} for row in rows[start:end]]
            kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            table = pa.table({"image": pa.array(images, kind), column: pa.array(labels)})
            if has_names and not (part == "test" and fault == "names in one part"):
                features = {column: {"names": names, "_type": "ClassLabel"}}
                text = json.dumps({"info": {"features": features}})
                table = table.replace_schema_metadata({"huggingface": text})
            file = case.root / f"{part}-{shard:05d}-of-{count:05d}.parquet"
            case.root.mkdir(exist_ok=True)
            pq.write_table(table, file)
        expected[part] = [(row[0], row[1]) for row in rows]
        if part == "train" and fault == "missing shard":
            file.unlink()
        elif part == "train" and fault == "shard twice":
            shutil.copy(file, file.with_name(f"{file.stem}-0123abcd.parquet"))
        elif part == "train" and fault == "two totals":
            file.rename(file.with_name(f"train-{count - 1:05d}-of-{count + 1:05d}.parquet"))
        elif part == "train" and fault == "two kinds":
            shutil.copy(file, file.with_name("train.parquet"))
    case.settings["classes"] = first
    return expected


@pytest.mark.parametrize("seed", sample(range(300), 12))
def test_files_give_the_right_pixels_and_labels_or_one_line(seed, tmp_path):
    case = Case(seed, tmp_path / "data")
    expected = {"imagefolder": written_folder, "parquet": written_parquet}[case.kind](case)
    order = case.settings.pop("classes")
    has_order = case.kind == "imagefolder" or order != case.names
    if case.fault == "no such class":
        case.settings["classes"] = [*order[:-1], "none"]
        has_order = case.settings["classes"] != order
    elif case.draw.random() < 0.4 and has_order and case.fault != "names in one part":
        order = case.draw.sample(order, len(order))
        case.settings["classes"] = order
    slot = None
    with contextlib.suppress(UserError):
        slot = scanned_slot(case.kind, case.root, tmp_path / "cache", **case.settings)
    if slot is None:
        with pytest.raises(UserError) as error:
            scanned_slot(case.kind, case.root, tmp_path / "cache", **case.settings)
        assert case.fault, error.value
        assert "\n" not in str(error.value)
        return
    # Files that only number their classes do not show that a name is wrong.
    assert not case.fault or (case.fault == "no such class" and case.kind == "parquet")
    if case.fault:
        return
    if case.kind == "imagefolder":
        for rows in expected.values():
            rows.sort(key=lambda row: order.index(row[0]))
    development, test = (load(slot, case.root, tmp_path / "cache") for load in (
        load_development, load_test,
    ))  # fmt: skip
    train = {int(row): (split, n) for split in parts(development)
             for n, row in enumerate(split.indices)}  # fmt: skip
    assert len(train) == len(expected["train"])
    for row, (name, pixels) in enumerate(expected["train"]):
        split, place = train[row]
        assert_shows(split.images[place], split.labels[place], pixels, order.index(name))
    assert len(test) == len(expected["test"])
    for row, (name, pixels) in enumerate(expected["test"]):
        assert_shows(test.images[row], test.labels[row], pixels, order.index(name))


def assert_shows(image: torch.Tensor, label: torch.Tensor, pixels: np.ndarray, number: int) -> None:
    shown = image.permute(1, 2, 0).numpy().astype(int).reshape(pixels.shape)
    # CMYK has rounding errors of its own.
    assert np.abs(shown - pixels).max() <= 1
    assert int(label) == number
