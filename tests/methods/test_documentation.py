"""What a method's record says of it: formula, settings and references."""

from typing import Literal, get_args, get_origin
from xml.etree import ElementTree

import pytest
from pybtex.database import BibliographyData, parse_string
from typer.testing import CliRunner

from docs.generate.formulas import drawn
from tune_calib.cli import app
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot

FIELDS = {
    (name, key): field
    for name in METHODS
    for key, field in METHODS[name].params.model_fields.items()
}


def bibliography(text: str) -> BibliographyData:
    return parse_string(text, "bibtex")


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_has_a_formula_that_can_be_drawn(name):
    formula = METHODS[name].formula
    drawing = ElementTree.fromstring(drawn(formula).replace("&", "&amp;"))
    clauses = drawing.findall("{http://www.w3.org/1998/Math/MathML}math")
    assert clauses
    assert all("".join(clause.itertext()).strip() for clause in clauses)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_names_its_paper(name):
    info = METHODS[name]
    entries = bibliography(info.bibtex).entries
    assert entries
    for entry in entries.values():
        assert entry.persons["author"]
        assert {"title", "year"} <= set(entry.fields)
        assert {"booktitle", "journal", "howpublished"} & set(entry.fields)
    assert str(info.year) in {entry.fields["year"] for entry in entries.values()}
    surname = info.paper.split()[0].rstrip(",")
    plain = {str(person) for entry in entries.values() for person in entry.persons["author"]}
    named = any(surname in person.replace('{\\"u}', "ü") for person in plain)
    assert named or surname in ("FeDLaS", "MaC-Cal")


def test_a_setting_and_its_options_have_descriptions():
    for key, field in FIELDS.items():
        assert field.description, key
        for option in options(field.annotation):
            assert f"- `{option}`: " in field.description, key
        described = [line for line in field.description.splitlines() if line.startswith("- `")]
        assert len(described) == len(options(field.annotation)), key


def options(annotation) -> list[str]:
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if isinstance(value, str)]
    return [value for part in get_args(annotation) for value in options(part)]


@pytest.mark.parametrize("slot", [DataSlot, NetworkSlot, HeadSlot])
def test_settings_of_slots_have_descriptions(slot):
    missing = [key for key, field in slot.model_fields.items() if not field.description]
    assert missing == []


def cite(*names: str):
    return CliRunner().invoke(app, ["explain", "+".join(names), "--bibtex"])


def test_cite_prints_each_entry_once_in_the_order_of_the_methods():
    printed = cite("fl", "ls+mac_cal+temperature", "flsd").stdout
    assert list(bibliography(printed).entries) == [
        "lin2017focal",
        "mukhoti2020calibrating",
        "szegedy2016rethinking",
        "mueller2019when",
        "ni2025maccal",
        "guo2017calibration",
    ]
