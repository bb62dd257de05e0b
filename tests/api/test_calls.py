"""Calls in Python ask what commands ask: the same options, defaults and refusals."""

import inspect
import shlex
from pathlib import Path

import numpy as np
import pytest

import tune_calib
from docs.generate import stubs
from docs.generate.commands import commands
from tests.support import here, rows
from tune_calib.cli.options import read_request
from tune_calib.errors import UserError
from tune_calib.spec.methods import METHODS
from tune_calib.spec.request import (
    AblateRequest,
    CompareRequest,
    EvaluateRequest,
    RunRequest,
    SearchRequest,
    build_request,
    format_command,
)
from tune_calib.spec.resolve import resolve_settings

COMMANDS = commands()
CALLS = ("ablate", "compare", "search", "evaluate", "run")
# Of a terminal alone: what is printed, and plans that are not carried out.
NOT_OF_CALLS = {"dry_run", "gpu_model", "help", "columns", "wide", "print_schema"}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_what_the_command_takes_by_the_same_defaults(name):
    options = {option.name.rstrip("_"): option for option in COMMANDS[name].params}
    shared = {key: option for key, option in options.items() if key not in NOT_OF_CALLS}
    parameters = inspect.signature(getattr(tune_calib, name)).parameters
    assert set(parameters) == set(shared)
    for key, parameter in parameters.items():
        default = shared[key].default
        expected = parameter.empty if shared[key].required else default
        if isinstance(parameter.default, tuple):  # options of several values have none typed
            assert expected is None, key
        else:
            assert parameter.default == expected, key
        is_argument = shared[key].param_type_name == "argument"
        assert (parameter.kind is parameter.POSITIONAL_OR_KEYWORD) == is_argument, key


@pytest.mark.parametrize("name", CALLS)
def test_help_documents_each_argument(name):
    call = getattr(tune_calib, name)
    for key in inspect.signature(call).parameters:
        assert f"    {key} (" in call.__doc__


def test_public_names_are_exported_and_typed():
    posthoc = [METHODS[name] for name in METHODS if METHODS[name].kind == "posthoc"]
    assert set(tune_calib.ESTIMATORS) == {info.implementation.__name__ for info in posthoc}
    for name in dir(tune_calib):
        assert getattr(tune_calib, name) is not None
    assert stubs.PATH.read_text() == stubs.build_stubs(), "run make generate"


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
    "run": {"file": Path("experiment.yaml"), "address": "auto"},
}  # fmt: skip


MODELS = {
    "ablate": AblateRequest, "compare": CompareRequest, "search": SearchRequest,
    "evaluate": EvaluateRequest, "run": RunRequest,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_command_of_a_request_makes_it_again(name):
    request = build_request(MODELS[name], GIVEN[name])
    words = shlex.split(format_command(name, request))
    assert words[:2] == ["tune-calib", name]
    parsed = COMMANDS[name].make_context(name, words[2:]).params
    again = read_request(MODELS[name], {key: parsed[key] for key in MODELS[name].model_fields})
    assert again == request
    if name == "ablate":
        settings = resolve_settings(request)
        assert settings["head"] == {"gamma": 0.9, "views": None, "tau": [1, 2]}
        assert settings["network"] == {"stages": [0, 1], "augment": "none"}
        assert settings["data"] == {
            "dataset": "digits", "holdout": "no", "norm": [[0.5] * 3, [0.25] * 3],
        }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("ablate", {"ladder": "mac_cul"}, "mac_cul"),
        ("ablate", {"ladder": "mac_cal", "seed": 3}, "unknown `seed`.*seeds"),
        ("ablate", {"ladder": "mac_cal", "seeds": "3"}, "`seeds` must be a whole number, got '3'"),
        ("ablate", {"ladder": "mac_cal", "seeds": 0}, "`seeds` must be at least 1"),
        ("ablate", {"ladder": "mac_cal", "seeds": 1, "head_seeds": 2}, "`seeds` varies both"),
        ("ablate", {"ladder": "mac_cal", "gpus": 0.3}, "0, 1, 1/k"),
        ("ablate", {"ladder": "mac_cal", "set": {"gamma": 1}}, "write slot.key"),
        ("ablate", {"ladder": "mac_cal", "epochs": 3, "set": {"network.epochs": 3}}, "given twice"),
        ("ablate", {"ladder": "mac_cal", "shift": "no_such"}, "no_such"),
        ("ablate", {}, "exactly one of `ladder`"),
        ("ablate", {"ladder": "mac_cal", "log": 3}, "`log` must be a string or a list of strings"),
        ("compare", {}, "exactly one of `methods` and `all`"),
        ("compare", {"methods": ["ls", 3]}, "methods"),
        ("search", {"method": "ls", "sampler": "tpee"}, "sampler 'tpee'; did you mean 'tpe'"),
        ("search", {"method": "mac_cal", "guard": 2}, "`guard` must be at most 1"),
        ("evaluate", {"out": "nowhere"}, "nowhere contains no"),
        ("run", {"file": "nowhere.yaml", "retry": "done"}, "`retry` 'done' is unknown"),
        ("open_results", {"out": "nowhere"}, "nowhere contains no"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(name, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as refused:
        getattr(tune_calib, name)(**arguments)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_none_or_empty_lists_mean_the_default():
    plain = build_request(SearchRequest, {"method": "ls"})
    for nothing in (None, []):
        assert build_request(SearchRequest, {"method": "ls", "metric": nothing}) == plain
        with pytest.raises(UserError, match="`dataset` must be a string"):
            build_request(SearchRequest, {"method": "ls", "dataset": nothing})


def test_a_mistake_in_a_sweep_file_names_its_line(tmp_path):
    file = tmp_path / "experiment.yaml"
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
    results = tune_calib.search("mac_cal", **asked, set=quick, out=tmp_path / "called")
    words = [word for key, value in asked.items() for word in (f"--{key}".replace("_", "-"), value)]
    words += [word for key, value in quick.items() for word in ("--set", f"{key}={value}")]
    assert here("search", "mac_cal", *words, "--out", tmp_path / "typed").returncode == 0
    assert rows(tmp_path / "called") == rows(tmp_path / "typed")
    assert len(results.suggestions) == 4
    assert "chosen: trial" in str(results)
    longer = tune_calib.search("mac_cal", **{**asked, "trials": 6}, set=quick, out=results.out)
    assert len(longer.suggestions) == 6
    evaluated = longer.evaluate(seeds=1)
    assert "optimism" in str(evaluated)
    assert set(evaluated.rows["rung_label"]) >= {"baseline", "chosen"}
    assert evaluated.rows["test/ece"].notna().all()
    assert tune_calib.open_results(results.out).chosen == longer.chosen
