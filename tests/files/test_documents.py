"""JSON files of the program carry a checksum of their content."""

import json

import pytest

from tune_calib.errors import DamagedFileError
from tune_calib.files.documents import CHECKSUM, seal, unseal

CONTENT = {"b": [1, 2.5, None, True], "a": {"é": "x", "n": 1e-05}, "chosen": 4}


def test_content_is_read_as_it_was_written():
    assert unseal(seal({**CONTENT, CHECKSUM: "old"}), "f") == CONTENT
    assert unseal(seal({1: (2, 3)}, indent=None), "f") == {"1": [2, 3]}
    # Layout and order do not matter.
    moved = dict(reversed(json.loads(seal(CONTENT)).items()))
    assert unseal(json.dumps(moved), "f") == CONTENT


def test_no_flipped_bit_changes_what_is_read():
    data = seal(CONTENT)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            try:
                content = unseal(bytes(flipped), "f")
            except DamagedFileError:
                continue
            assert content == CONTENT


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"a": 1}'])
def test_a_file_without_checksum_is_refused(text):
    with pytest.raises(DamagedFileError, match=r"folder/f has no checksum.*run the command"):
        unseal(text, "folder/f")
