"""How commands and experiment files tell a recipe, and what they refuse."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import here
from tune_calib.experiments.entries import plan_entries
from tune_calib.experiments.file import read_experiment_file
from tune_calib.spec.datasets import DATASETS, Quick
from tune_calib.spec.recipe import RECIPES, Recipe

COMMANDS = [["ablate", "mac_cal"], ["compare", "ce"], ["search", "ls"]]
WRONG = {
    "none fits": (["--dataset", "cub"], "cub has no quick setting; choose a --recipe that fits"),
    "another data set": (["--dataset", "cub", "--recipe", "focal"], "does not fit cub"),
    "of digits": (["--recipe", "plp"], "does not fit digits (it is for cifar10, cifar100, svhn)"),
    "misspelt": (["--recipe", "foca"], "did you mean 'focal'?"),
    "empty": (["--recipe", ""], "--recipe"),
    "backbone": (
        ["--dataset", "cifar10", "--backbone", "resnet50"],
        "was made for small_vgg, not for resnet50; choose a --recipe that fits: acls, crl, fedlas,",
    ),
    "no such backbone": (["--dataset", "cifar10", "--backbone", "resnet5"], "unknown backbone"),
    "no weights": (["--dataset", "cub", "--recipe", "vit"], "set `network.weights` to the safe"),
    "weights gone": (
        ["--dataset", "cub", "--recipe", "vit", "--set", "network.weights=/no/such"],
        "network.weights: /no/such is not a readable safetensors file",
    ),
}


@pytest.mark.parametrize("wrong", list(WRONG))
@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_recipe_is_one_line_and_leaves_nothing(command, wrong, tmp_path, refusal):
    words, message = WRONG[wrong]
    assert message in refusal(*command, *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


SWEEP = """out: OUT
datasets: [cifar10]
entries:
  a:
    methods: [ce]
"""


@pytest.mark.parametrize("at", ["top", "entry", "both"])
def test_the_recipe_of_an_entry_stands_above_that_of_the_file(at, tmp_path, cifar_root):
    text = SWEEP.replace("OUT", f"{tmp_path / 'out'}\ndata_root: {cifar_root}")
    text = ("recipe: focal\n" if at != "entry" else "") + text
    text += "    recipe: plp\n" if at != "top" else ""
    path = tmp_path / "experiment.yaml"
    path.write_text(text)
    (work,) = plan_entries(read_experiment_file(path))
    assert work.run.resolved.recipe.name == ("focal" if at == "top" else "plp")


@pytest.mark.parametrize(
    "command",
    [["compare", "ce"], pytest.param(["search", "ls", "--trials", "1"], marks=pytest.mark.slow)],
)
def test_a_folder_of_another_quick_setting_or_recipe_is_refused(
    command, tmp_path, refusal, monkeypatch
):
    words = [*command, "--epochs", "1", "--out", tmp_path / "out"]
    assert here(*words).returncode == 0
    quick = DATASETS["digits"].quick
    settings = {**quick.settings, "network": {**quick.settings["network"], "batch_size": 64}}
    other = replace(DATASETS["digits"], quick=Quick("another", settings))
    with monkeypatch.context() as patched:
        patched.setitem(DATASETS._records, "digits", other)
        message = refusal(*words)
        assert "recipe" in message
    lab = Recipe(
        "lab", "a lab's", "nobody", {"network": {"backbone": "small_cnn"}}, datasets=("digits",)
    )
    monkeypatch.setitem(RECIPES._records, "lab", lab)
    monkeypatch.setitem(RECIPES._origins, "lab", None)
    message = refusal(*words, "--recipe", "lab")
    assert "recipe" in message
    # As it was it goes on.
    assert here(*words).returncode == 0
    assert Path(tmp_path / "out").exists()
