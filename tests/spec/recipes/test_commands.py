"""How commands and experiment files tell a recipe, and what they refuse."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.spec.recipes.support import WEIGHTS, request_for
from tests.support import here
from tune_calib.experiments.entries import plan_entries
from tune_calib.experiments.file import read_experiment_file
from tune_calib.spec.datasets import DATASETS, Quick
from tune_calib.spec.ladder import LADDERS, build_comparison, expand
from tune_calib.spec.recipe import QUICK, RECIPES, Recipe
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.caption import describe_setting


@pytest.mark.parametrize(
    ("settings", "message", "not_told"),
    [
        ({}, ["SGD, lr 0.1, batch 128", "recipe focal (focal_calibration"], ["warm-up", "fp32"]),
        (
            {"schedule": "cosine", "warmup": 0.1, "nesterov": True, "precision": "bf16"},
            ["Nesterov's momentum", "cosine", "warm-up over 0.1 of the epochs", "bf16"],
            ["steps"],
        ),
        ({"schedule": "one_cycle", "warmup": 0.3}, ["one cycle, warm-up over 0.3"], ["Nesterov"]),
        ({"precision": "tf32"}, ["tf32"], ["cosine"]),
    ],
)
def test_a_caption_names_schedule_and_precision_where_they_are_not_the_default(
    settings, message, not_told
):
    request, ladder = (
        request_for("cifar10", "focal", **settings),
        build_comparison(["ce", "mac_cal"]),
    )
    caption = describe_setting(expand(ladder, request), ladder, request)
    assert all(words in caption for words in message)
    assert not any(words in caption for words in not_told)


def test_a_caption_names_what_is_done_to_the_images():
    request, ladder = request_for("svhn", "plp"), build_comparison(["ce"])
    assert describe_setting(expand(ladder, request), ladder, request).startswith(
        "svhn; split plp; norm half"
    )
    request = request_for("cub", "vit")
    caption = describe_setting(expand(ladder, request), ladder, request)
    assert caption.startswith("cub; resize 448; crop 384; vit_base_patch16_384")
    assert f"from the weights {WEIGHTS}" in caption


@pytest.mark.parametrize("own_recipes", [False, True])
@pytest.mark.parametrize("name", [None, QUICK, "focal"])
def test_a_caption_names_the_recipe_and_what_was_changed(name, own_recipes):
    request = request_for("cifar10", name, own_recipes, epochs=3)
    ladder = build_comparison(("ce",))
    caption = describe_setting(expand(ladder, request), ladder, request)
    assert f"; recipe {name or QUICK} ({request.recipe.title}" in caption
    assert "but network.epochs 3" in caption
    assert ("authors' recipe" in caption) == own_recipes


def test_plan_and_caption_of_a_table_name_the_settings_of_methods_that_it_sets(tmp_path):
    """The demo is the same ladder on the same data with another gamma."""
    parts = []
    for head in ({"epochs": 4}, {"epochs": 4, "gamma": 0.95}):
        request = ResolvedRequest({"network": {"epochs": 9}, "head": head}).with_recipe()
        caption = describe_setting(expand(LADDERS["mac_cal"], request), LADDERS["mac_cal"], request)
        parts.append([part for part in caption.split("; ") if part.startswith("set ")])
    assert parts == [[], ["set head.gamma 0.95"]]
    words = ["reproduce", "maccal/table5", "--scale", "smoke", "--dry-run", "--out", tmp_path]
    assert "\nladder: set head.gamma 0.95\n" in here(*words).stdout


def test_a_finished_run_prints_no_recipe(tmp_path):
    words = ["compare", "ce", "--epochs", "1", "--out", tmp_path / "out"]
    first, again = here(*words), here(*words)
    title = DATASETS["digits"].quick.title
    assert f"  recipe   quick ({title}), but network.epochs 1\n" in first.stderr
    assert (first.returncode, again.returncode) == (0, 0)
    assert "recipe" not in again.stderr


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
    words, told = WRONG[wrong]
    assert told in refusal(*command, *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", COMMANDS[1:], ids=lambda words: words[0])
def test_own_recipes_under_a_recipe_of_pretrained_networks_are_one_line(command, tmp_path, refusal):
    words = ["--dataset", "aircraft", "--recipe", "mbls_cub", "--own-recipes"]
    words += ["--set", f"network.weights={WEIGHTS}"]
    assert "leave it out" in refusal(*command, *words, "--out", tmp_path / "out")


SWEEP = """out: OUT
datasets: [cifar10]
entries:
  a:
    methods: [ce]
"""
IN_FILE = {
    "unknown": (SWEEP + "    recipe: foca\n", 6, "did you mean 'focal'"),
    "unknown at the top": ("recipe: foca\n" + SWEEP, 1, "did you mean 'focal'"),
    "does not fit": (SWEEP + "    datasets: [svhn]\n    recipe: focal\n", 7, "does not fit svhn"),
    "does not fit at the top": ("recipe: vit\n" + SWEEP, 1, "does not fit cifar10"),
    "no string": (SWEEP + "    recipe: [focal]\n", 6, "must be a string"),
    "no recipe": (SWEEP + "    datasets: [cub]\n", 4, "cub has no quick setting"),
    "backbone": (SWEEP + "    backbones: [resnet50]\n", 4, "not for resnet50"),
    "no weights": (SWEEP + "    datasets: [cub]\n    recipe: vit\n", 4, "`network.weights`"),
}


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("wrong", list(IN_FILE))
def test_a_wrong_recipe_in_a_sweep_file_is_one_line_with_its_number(
    wrong, search, tmp_path, refusal
):
    text, line, told = IN_FILE[wrong]
    path = tmp_path / "experiment.yaml"
    text = text.replace("OUT", str(tmp_path / "out"))
    path.write_text(text + ("    search: {trials: 2}\n" if search else ""))
    message = refusal("run", path, "--dry-run")
    # A search of an entry is of one of its methods, and its spec is built where that stands.
    line += search and wrong == "no weights"
    assert f"{path} line {line}: " in message
    assert told in message
    assert not (tmp_path / "out").exists()


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
        assert "has changed since it began" in message
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
