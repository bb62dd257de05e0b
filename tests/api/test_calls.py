"""Calls in Python ask what commands ask: the same options, defaults and refusals."""

import inspect
import shlex
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import typer

import tune_calib
from tests.support import here, rows
from tune_calib.api import calls
from tune_calib.api.command import command_of
from tune_calib.cli import app
from tune_calib.errors import UserError
from tune_calib.tuning.search.study import SamplerName

COMMANDS = typer.main.get_command(app).commands
CALLS = ("ablate", "compare", "search", "evaluate", "run")
# Of a terminal alone: what is printed, and plans that are not carried out.
NOT_OF_CALLS = {"dry_run", "gpu_model", "help", "columns", "wide"}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_what_the_command_takes_by_the_same_defaults(name):
    options = {each.name.rstrip("_"): each for each in COMMANDS[name].params}
    told = {key: each for key, each in options.items() if key not in NOT_OF_CALLS}
    parameters = inspect.signature(getattr(tune_calib, name)).parameters
    assert set(parameters) == set(told)
    for key, parameter in parameters.items():
        default = told[key].default
        expected = parameter.empty if told[key].required else default
        assert parameter.default == expected, key
        is_argument = told[key].param_type_name == "argument"
        assert (parameter.kind is parameter.POSITIONAL_OR_KEYWORD) == is_argument, key


def test_samplers_are_those_of_studies():
    hints = get_type_hints(inspect.unwrap(calls.search))
    assert set(get_args(hints["sampler"])) == set(get_args(SamplerName))


GIVEN = {
    "ablate": {
        "ladder": "mac_cal", "seeds": 3, "controls": True, "gpus": 0.5, "bootstrap": 100,
        "norm": [[0.5] * 3, [0.25] * 3], "data_root": Path("some where"), "shift": ["noise", "x"],
        "set": {"head.gamma": np.float64(0.9), "network.stages": np.arange(2), "data.holdout": "no",
                "head.views": None, "network.augment": "none", "head.tau": (1, 2)},
    },
    "compare": {"methods": ["ls", "ls+mac_cal+temperature"], "own_recipes": True, "out": "a b"},
    "search": {"method": "mac_cal", "metric": ["ece", "nll"], "guard": 0.02, "sampler": "random"},
    "evaluate": {"out": "x", "seeds": 7},
    "run": {"file": Path("sweep.yaml"), "address": "auto"},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_command_of_a_call_says_the_same(name):
    call = getattr(calls, name)
    defaults = {key: each.default for key, each in inspect.signature(call).parameters.items()}
    given = {**defaults, **GIVEN[name]}
    words = shlex.split(command_of(call, given))
    assert words[:2] == ["tune-calib", name]
    parsed = COMMANDS[name].make_context(name, words[2:]).params
    parsed = {key.rstrip("_"): value for key, value in parsed.items()}
    for key, value in GIVEN[name].items():
        if key == "set":
            from tune_calib.cli.options import settings

            texts = parsed["set"]
            found = settings("digits", None, None, None, None, None, None, None, False, texts)
            assert found["head"] == {"gamma": 0.9, "views": None, "tau": [1, 2]}
            assert found["network"] == {"stages": [0, 1], "augment": "none"}
            assert found["data"]["holdout"] == "no"
        elif key == "norm":
            assert parsed[key] == "[[0.5, 0.5, 0.5], [0.25, 0.25, 0.25]]"
        else:
            assert parsed[key] == value, key


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("ablate", {"ladder": "mac_cul"}, "mac_cul"),
        ("ablate", {"ladder": "mac_cal", "seed": 3}, "unknown `seed`.*seeds"),
        ("ablate", {"ladder": "mac_cal", "seeds": "3"}, "`seeds` must be a whole number, got '3'"),
        ("ablate", {"ladder": "mac_cal", "seeds": True}, "`seeds` must be a whole number"),
        ("ablate", {"ladder": "mac_cal", "seeds": 0}, "`seeds` must be at least 1"),
        ("ablate", {"ladder": "mac_cal", "seeds": 1, "head_seeds": 2}, "`seeds` varies both"),
        ("ablate", {"ladder": "mac_cal", "gpus": 0.3}, "0, 1 or 1/k"),
        ("ablate", {"ladder": "mac_cal", "set": {"gamma": 1}}, "write slot.key"),
        ("ablate", {"ladder": "mac_cal", "set": {"head.seed": 1}}, "is not a setting"),
        ("ablate", {"ladder": "mac_cal", "set": {"head.gamma": object()}}, "head.gamma.*no number"),
        ("ablate", {"ladder": "mac_cal", "set": {"head.gamma": "x"}}, "gamma"),
        ("ablate", {"ladder": "mac_cal", "epochs": 3, "set": {"network.epochs": 3}}, "given twice"),
        ("ablate", {"ladder": "mac_cal", "bootstrap": 3}, "`bootstrap` must be"),
        ("ablate", {"ladder": "mac_cal", "shift": "no_such"}, "no_such"),
        ("ablate", {}, "missing.*ladder"),
        ("compare", {}, "name methods"),
        ("compare", {"methods": ["ce"], "all": "head"}, "name methods"),
        ("compare", {"all": "heads"}, "heads"),
        ("compare", {"methods": ["ls", 3]}, "methods"),
        ("search", {"method": "mac_cal", "sampler": "tpee"}, "`sampler` must be"),
        ("search", {"method": "mac_cal", "metric": "ecee"}, "unknown `metric` 'ecee'"),
        ("search", {"method": "mac_cal", "guard": 2}, "`guard` must be within 0 and 1"),
        ("search", {"method": "mac_cal", "scheduler": "asha"}, "`scheduler` asha stops"),
        ("search", {"method": "mac_cal", "trials": 0}, "`trials` must be at least 1"),
        ("evaluate", {"out": "nowhere"}, "nowhere holds no"),
        ("evaluate", {"out": "nowhere", "seeds": 0}, "`seeds` must be at least 1"),
        ("run", {"file": "nowhere.yaml"}, "cannot read nowhere.yaml"),
        ("run", {"file": "nowhere.yaml", "retry": "done"}, "`retry` must be"),
        ("open_results", {"out": "nowhere"}, "nowhere holds no"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(name, given, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=told) as refused:
        getattr(tune_calib, name)(**given)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_sweep_file_names_its_line(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text("entries:\n  a: {methods: [ce], seeds: 0}\n")
    with pytest.raises(UserError, match=r"line 2: entries\.a\.seeds") as refused:
        tune_calib.run(file)
    assert str(refused.value) in here("run", file).stderr


def test_plug_ins_of_a_call_end_with_it(tmp_path):
    from tune_calib.spec import plugins

    example = Path(__file__).parents[2] / "docs/examples/plugin_ladder.py"
    with pytest.raises(UserError, match="no_such"):
        tune_calib.ablate("no_such", plugin=str(example))
    assert plugins.in_use() == ()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_in_python_is_that_of_the_command_line_and_is_evaluated(tmp_path):
    quick = {"network.augment": "none", "head.augment": "none"}
    asked = {
        "trials": 4,
        "population": 2,
        "at_once": 1,
        "epochs": 6,
        "head_epochs": 3,
        "guard": 0.5,
    }
    found = tune_calib.search("mac_cal", **asked, set=quick, out=tmp_path / "called")
    words = [word for key, value in asked.items() for word in (f"--{key}".replace("_", "-"), value)]
    words += [word for key, value in quick.items() for word in ("--set", f"{key}={value}")]
    assert here("search", "mac_cal", *words, "--out", tmp_path / "typed").returncode == 0
    assert rows(tmp_path / "called") == rows(tmp_path / "typed")
    assert len(found.suggestions) == 4
    assert "chosen: trial" in str(found)
    longer = tune_calib.search("mac_cal", **{**asked, "trials": 6}, set=quick, out=found.out)
    assert len(longer.suggestions) == 6
    evaluated = longer.evaluate(seeds=1)
    assert "optimism" in str(evaluated)
    assert set(evaluated.rows["rung_label"]) >= {"baseline", "chosen"}
    assert evaluated.rows["test/ece"].notna().all()
    assert tune_calib.open_results(found.out).chosen == longer.chosen
