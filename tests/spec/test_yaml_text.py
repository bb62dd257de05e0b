"""Values of YAML files and of ``--set``: as every version of YAML and every reader takes them."""

import pytest

from tune_calib.errors import UserError
from tune_calib.spec.yaml_text import UnclearError, parse_yaml, read_yaml

CLEAR = {
    "10": 10, "-3": -3, "+1": 1, "0": 0, "0x1F": 31, "0.5": 0.5, ".5": 0.5, "5.": 5.0,
    "1e3": 1000.0, "1E-3": 0.001, "1.5e+2": 150.0, "-2e1": -20.0, "true": True, "False": False,
    "null": None, "~": None, "y": "y", "2024-01-01": "2024-01-01", "'010'": "010", "'no'": "no",
    "3d_face": "3d_face", "a_1": "a_1", "12:30:xx": "12:30:xx", "no.": "no.", "=": "=",
}  # fmt: skip
UNCLEAR = [
    "010", "-010", "08", "00", "0o10", "0b11", "1_000", "0_8", "0x1_F", "0.1_5", "1:30", "1:30.5",
    "190:20:30", "yes", "No", "on", "OFF", ".inf", "-.inf", ".nan", "1e400", "!!int 010",
    "!!bool yes",
]  # fmt: skip


@pytest.mark.parametrize("text", CLEAR)
def test_a_value_that_all_read_alike_is_read(text):
    value = parse_yaml(f"a: {text}")[0]["a"]
    assert (value, type(value)) == (CLEAR[text], type(CLEAR[text]))


@pytest.mark.parametrize("text", UNCLEAR)
def test_a_value_that_versions_of_yaml_read_differently_is_refused(text):
    with pytest.raises(UnclearError, match="or put it in quotes"):
        parse_yaml(f"a: [1, {text}]")


def test_the_refusal_of_a_value_names_its_line(tmp_path):
    (tmp_path / "a.yaml").write_text("out: x\nseeds: 010\n")
    with pytest.raises(UserError, match=r"a.yaml line 2: versions of YAML read 010 differently; w"):
        read_yaml(tmp_path / "a.yaml", "an experiment file")
