"""The index of the records whose modules take seconds to import says what the records say."""

import json

import pytest

from docs.generate.index import PATH, build_index
from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.methods import METHODS, MethodInfo


def test_the_index_is_that_of_the_records():
    assert json.loads(PATH.read_text("utf-8")) == build_index(), "run make generate"


@pytest.mark.parametrize(
    ("records", "names"),
    [(BACKBONES, ["small_cnn", "resnet18", "convnext_tiny_in22ft1k", "imported"]),
     (DATASETS, ["digits", "imported"]), (METHODS, ["ce"])],
)  # fmt: skip
def test_names_of_the_index_are_those_of_records(records, names):
    for name in names:
        records.require(name)
        assert records[name].name == name


def test_a_record_of_others_has_no_facts_and_takes_no_name_of_the_program():
    fresh: Registry[MethodInfo] = Registry("method", "tune_calib.methods", MethodInfo)
    with pytest.raises(ValueError, match="already registered"):
        fresh.register(METHODS["ce"])
    other = METHODS["ce"].__class__(**{**vars(METHODS["ce"]), "name": "other"})
    fresh.register(other)
    assert fresh["other"] is other
    assert fresh.facts("other") == {}
    with pytest.raises(UserError, match="did you mean 'other'"):
        fresh.require("othr")
