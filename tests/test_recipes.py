"""Every recipe on every data set and backbone, what the papers say of them, and wrong inputs."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.support import here
from tune_calib.asked import Asked
from tune_calib.data.base import info_of
from tune_calib.data.constants import NORMS
from tune_calib.errors import UserError
from tune_calib.ladder import expand, side_by_side
from tune_calib.recipe import QUICK, Quick, Recipe, fitting
from tune_calib.registry import BACKBONES, DATASETS, METHODS, RECIPES
from tune_calib.tuning.caption import conditions, tell_recipe
from tune_calib.tuning.sweep.file import read_sweep_file
from tune_calib.tuning.sweep.run import planned_works

BOTH = [(dataset, name) for dataset, name in product(DATASETS, RECIPES)]
FITTING = [(dataset, name) for dataset in DATASETS for name in fitting(dataset)]
FOUND = {
    "classes": 3, "channels": 3, "stored": 32, "size": 32,
    "mean": (0.5,) * 3, "std": (0.2,) * 3, "digest": "0",
}  # fmt: skip
WEIGHTS = "0123456789abcdef"
NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]


def asked_of(dataset: str, name: str | None, own_recipes: bool = False, **network) -> Asked:
    """With what only files say of some data sets, and with weights where they are needed."""
    found = {"found": FOUND} if DATASETS[dataset].general else {}
    weights = {"weights": WEIGHTS} if name and RECIPES[name].pretrained else {}
    given = {"data": {"dataset": dataset, **found}, "network": {**weights, **network}}
    return Asked(given, own_recipes=own_recipes).suited(name)


def spec_of(dataset: str, name: str | None, method: str = "ce", **network):
    (trial,) = expand(side_by_side([method]), asked_of(dataset, name, **network))
    return trial.spec


@pytest.mark.parametrize(("dataset", "name"), BOTH)
def test_a_recipe_fits_a_data_set_or_says_in_one_line_which_do(dataset, name):
    if name in fitting(dataset):
        recipe = asked_of(dataset, name).recipe
        assert recipe.name == name
        assert recipe.title
        return
    with pytest.raises(UserError) as caught:
        asked_of(dataset, name)
    told = str(caught.value)
    assert "\n" not in told
    assert all(other in told for other in fitting(dataset))


@pytest.mark.parametrize("own_recipes", [False, True])
@pytest.mark.parametrize(("dataset", "name"), FITTING)
def test_all_methods_expand_under_each_recipe(dataset, name, own_recipes):
    names = [*NETWORKS, "mac_cal", "tst", "ls+vtst+temperature"]
    if own_recipes and RECIPES[name].pretrained:
        with pytest.raises(UserError, match="`own_recipes` train them from the start"):
            expand(side_by_side(names), asked_of(dataset, name, own_recipes))
        return
    # The joint variant of TST and BalCAL ask for stages that a vision transformer has not.
    names = [each for each in names if not needs_stages(each) or name != "vit"]
    asked = asked_of(dataset, name, own_recipes)
    for trial in expand(side_by_side(names), asked):
        network = trial.spec.network
        assert network.backbone == asked.recipe.at(dataset)["network"]["backbone"]
        assert trial.spec.data.dataset == dataset


def needs_stages(method: str) -> bool:
    return method in METHODS and "stages" in METHODS[method].needs


@pytest.mark.parametrize("backbone", [*BACKBONES, "resnet18", "vit_base_patch16_384"])
@pytest.mark.parametrize(("dataset", "name"), FITTING)
def test_a_recipe_that_is_named_takes_any_backbone(dataset, name, backbone):
    spec = spec_of(dataset, name, backbone=backbone)
    settings = RECIPES[name].at(dataset, backbone) if name != QUICK else {}
    for key, value in settings.get("network", {}).items():
        if key != "backbone":
            assert getattr(spec.network, key) == value
    assert spec.network.backbone == backbone
    # Once more through JSON: it is a spec, and no other.
    assert type(spec).model_validate_json(spec.canonical_json()).hash == spec.hash


@pytest.mark.parametrize("dataset", [name for name in DATASETS if DATASETS[name].quick])
def test_the_quick_setting_that_nobody_named_is_for_its_backbones_alone(dataset):
    made_for = DATASETS[dataset].quick.backbones
    for backbone in ("small_cnn", "small_vgg", "resnet50", "resnet110"):
        if not made_for or backbone in made_for:
            assert spec_of(dataset, None, backbone=backbone) == spec_of(
                dataset, QUICK, backbone=backbone
            )
            continue
        with pytest.raises(UserError, match=f"made for {', '.join(made_for)}, not for {backbone}"):
            spec_of(dataset, None, backbone=backbone)


# What their authors wrote: optimiser, rate, decay, epochs, drops, batch, loss, clip, epoch kept.
SGD, ADAM = ("sgd", 0.1, 5e-4), ("adam", 1e-4, 0.0)
FOCAL = (*SGD, 350, [150, 250], 128, "sum", 2.0, "last")
ACLS = (*SGD, 350, [150, 250], 128, "mean", 2.0, "best_val_acc")
TINY = [40, 60]
TST = (*ADAM, 600, [], 256, "mean", None, "min_val_nll")
PLP = ("sgd", 0.1, 1e-4, 350, [150, 250], 128, "mean", None, "last")
CRL = ("sgd", 0.1, 1e-4, 300, [150, 250], 128, "mean", None, "last")
VIT = ("adamw", 1e-4, 5e-4, 200, [80, 160], 16, "mean", 2.0, "best_val_acc")
MBLS = (*SGD, 200, [150], 32, "mean", 2.0, "best_val_acc")
PUBLISHED = {
    **{("focal", each): FOCAL for each in ("cifar10", "cifar100", "imagefolder", "parquet")},
    ("focal", "tiny_imagenet"): (*SGD, 100, TINY, 64, "sum", 2.0, "last"),
    **{
        (name, each): ACLS
        for name in ("acls", "fedlas")
        for each in ("cifar10", "cifar100", "imagefolder", "parquet")
    },
    **{
        (name, "tiny_imagenet"): (*SGD, 100, TINY, 64, "mean", 2.0, "best_val_acc")
        for name in ("acls", "fedlas")
    },
    **{("tst", each): TST for each in ("cifar10", "cifar100", "svhn")},
    **{("plp", each): PLP for each in ("cifar10", "cifar100", "svhn")},
    **{("crl", each): CRL for each in ("cifar10", "cifar100", "svhn")},
    ("mdca", "cifar10"): (*SGD, 160, [80, 120], 128, "mean", None, "best_val_acc"),
    ("mdca", "cifar100"): (*SGD, 200, [100, 150], 128, "mean", None, "best_val_acc"),
    **{("vit", each): VIT for each in ("cub", "aircraft")},
    **{("mbls_cub", each): MBLS for each in ("cub", "aircraft")},
}


def test_every_published_recipe_is_held_against_what_its_authors_wrote():
    assert set(PUBLISHED) == {(name, ds) for ds, name in FITTING if name != QUICK}


@pytest.mark.parametrize(("name", "dataset"), list(PUBLISHED))
def test_a_recipe_is_the_published_one(name, dataset):
    network = spec_of(dataset, name).network
    drops = [round(share * network.epochs) for share in network.milestones]
    assert (
        network.optimizer, network.lr, network.weight_decay, network.epochs, drops,
        network.batch_size, network.loss_reduction, network.clip_grad_norm, network.select,
    ) == PUBLISHED[name, dataset]  # fmt: skip
    assert (network.schedule, network.warmup, network.nesterov) == ("steps", 0, False)
    last_out = {("acls", "cifar10"), ("fedlas", "cifar10"), ("mdca", "cifar10")}
    assert network.drop_last == ((name, dataset) in last_out or dataset in ("cub", "aircraft"))
    assert network.augment == "standard"


# Of their programs: rule of the split, constants, stored size, size.
DATA = {
    ("focal", "cifar10"): ("default", "cifar10", 32, 32),
    ("tst", "cifar10"): ("tst", "cifar10_tst", 32, 32),
    ("tst", "cifar100"): ("tst", "cifar100_tst", 32, 32),
    ("tst", "svhn"): ("tst", "cifar10", 32, 32),
    ("plp", "cifar10"): ("plp", "imagenet", 32, 32),
    ("plp", "cifar100"): ("plp", "cifar100_crl", 32, 32),
    ("plp", "svhn"): ("plp", "half", 32, 32),
    ("crl", "cifar10"): ("whole", "cifar10_crl", 32, 32),
    ("crl", "cifar100"): ("whole", "cifar100_crl", 32, 32),
    ("crl", "svhn"): ("whole", "half", 32, 32),
    ("mdca", "cifar100"): ("mdca", "cifar10", 32, 32),
    ("acls", "tiny_imagenet"): ("default", "imagenet", 64, 64),
    **{("vit", each): ("default", "imagenet", 448, 384) for each in ("cub", "aircraft")},
    **{("mbls_cub", each): ("default", "imagenet", 256, 224) for each in ("cub", "aircraft")},
}


@pytest.mark.parametrize(("name", "dataset"), list(DATA))
def test_images_are_cut_normalised_and_resized_as_published(name, dataset):
    slot = spec_of(dataset, name).data
    info = info_of(slot)
    split, norm, stored, size = DATA[name, dataset]
    assert (slot.split, info.mean, info.std) == (split, *NORMS[norm])
    assert (info.stored or info.size, info.size) == (stored, size)


# Where FeDLaS and the method's own paper differ, by recipe.
FINE = ("tiny_imagenet", "cub", "aircraft")
VALUES = [
    *(("ls", ds, None, None, {"alpha": 0.1 if ds == "cifar100" else 0.05})
      for ds in ("cifar10", "cifar100", *FINE)),
    *(("mbls", ds, None, None, {"margin": 6, "alpha": 0.1}) for ds in ("cifar10", "cifar100")),
    ("mbls", "tiny_imagenet", "acls", None, {"margin": 10, "alpha": 0.1}),
    ("mbls", "tiny_imagenet", "fedlas", None, {"margin": 10, "alpha": 0.05}),
    *(("mbls", ds, "mbls_cub", None, {"margin": 10, "alpha": 0.1}) for ds in FINE[1:]),
    *(("mbls", ds, "vit", None, {"margin": 10, "alpha": 0.05}) for ds in FINE[1:]),
    *(("acls", ds, None, None, {"margin": 6}) for ds in ("cifar10", "cifar100")),
    *(("acls", ds, None, None, {"margin": 10, "alpha": 0.1}) for ds in FINE),
    *(("fl", ds, None, None, {"gamma": 3}) for ds in ("cifar10", "cifar100", *FINE)),
    *(("dfl", "cifar10", "focal", backbone, {"gamma": gamma}) for backbone, gamma in
      (("resnet50", 5), ("resnet110", 4.5), ("wrn26_10", 2.6), ("densenet121", 5))),
    *(("dfl", "cifar100", "focal", backbone, {"gamma": gamma}) for backbone, gamma in
      (("resnet50", 5), ("resnet110", 6.1), ("wrn26_10", 3.9), ("densenet121", 3.4))),
    *(("dfl", ds, None, None, {"gamma": 2.3}) for ds in FINE),
    ("fedlas_ls", "cifar10", None, None, {"alpha": 0.05, "beta": 4, "theta": 0.95}),
    ("fedlas_ls", "cifar100", None, None, {"alpha": 0.1, "beta": 4, "theta": 0.5}),
    *(("fedlas_ls", ds, None, None, {"alpha": 0.05, "beta": 4, "theta": 0.5}) for ds in FINE),
    ("fedlas_mbls", "cifar10", None, None,
     {"alpha": 0.1, "beta": 0.5, "margin": 6, "theta": 0.95}),
    ("fedlas_mbls", "cifar100", None, None, {"alpha": 0.1, "beta": 1, "margin": 6, "theta": 0.5}),
    *(("fedlas_mbls", ds, None, None, {"alpha": 0.05, "beta": 0.5, "margin": 10, "theta": 0.5})
      for ds in FINE),
]  # fmt: skip


@pytest.mark.parametrize(("method", "dataset", "name", "backbone", "values"), VALUES)
def test_a_method_has_the_values_of_its_paper(method, dataset, name, backbone, values):
    own = {"backbone": backbone} if backbone else {}
    for each in [name] if name else fitting(dataset):
        if each == "vit" and needs_stages(method):
            continue
        params = spec_of(dataset, each, method, **own).network.params
        assert {key: getattr(params, key) for key in values} == values


# What the scripts of focal_calibration set for Brier alone.
@pytest.mark.parametrize(
    ("dataset", "backbone", "epochs", "lr"),
    [
        ("cifar10", "wrn26_10", 550, 0.1),
        ("cifar10", "resnet110", 350, 0.1),
        ("cifar100", "resnet110", 430, 0.1),
        ("cifar100", "wrn26_10", 350, 0.1),
        ("tiny_imagenet", "resnet50", 100, 0.035),
    ],
)
def test_what_a_recipe_sets_otherwise_for_a_method_is_for_it_alone(dataset, backbone, epochs, lr):
    brier = spec_of(dataset, "focal", "brier", backbone=backbone).network
    assert (brier.epochs, brier.lr, brier.loss_reduction) == (epochs, lr, "mean")
    others = spec_of(dataset, "focal", "fl", backbone=backbone).network
    assert (others.lr, others.loss_reduction) == (0.1, "sum")
    assert others.epochs == (100 if dataset == "tiny_imagenet" else 350)
    # Under another's recipe it is trained as all are.
    if "plp" in fitting(dataset):
        assert spec_of(dataset, "plp", "brier", backbone=backbone).network.epochs == 350


@pytest.mark.parametrize(
    ("dataset", "decay"), [("cifar10", 5e-4), ("cifar100", 5e-4), ("svhn", 5e-4)]
)
def test_plp_decays_more_than_what_its_code_base_trains_beside_it(dataset, decay):
    assert spec_of(dataset, "plp", "plp").network.weight_decay == decay
    assert spec_of(dataset, "plp", "mit_l").network.weight_decay == 1e-4


@pytest.mark.parametrize("own_recipes", [False, True])
@pytest.mark.parametrize(("dataset", "name"), FITTING)
def test_what_is_asked_for_stands_above_recipes(dataset, name, own_recipes):
    if own_recipes and RECIPES[name].pretrained:
        return
    asked = asked_of(dataset, name, own_recipes, epochs=7, lr=0.3, backbone="resnet20")
    (trial,) = expand(side_by_side(["fl"]), asked)
    network = trial.spec.network
    assert (network.epochs, network.lr, network.backbone) == (7, 0.3, "resnet20")
    settings = {**asked.recipe.at(dataset, "resnet20")["network"], "method": "fl"}
    # Those of its authors stand above the recipe's, but not for these.
    assert network.augment == settings["augment"]
    assert network.batch_size == (
        RECIPES["focal"].at(dataset)["network"]["batch_size"]
        if own_recipes
        else settings["batch_size"]
    )
    told = asked.recipe_told
    assert told.startswith(f"{name}, but ")
    assert "network.epochs 7" in told
    assert told.endswith("each method by its authors' recipe") == own_recipes


@pytest.mark.parametrize(
    ("settings", "told", "not_told"),
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
    settings, told, not_told
):
    asked, ladder = asked_of("cifar10", "focal", **settings), side_by_side(["ce", "mac_cal"])
    caption = conditions(expand(ladder, asked), ladder, asked)
    assert all(words in caption for words in told)
    assert not any(words in caption for words in not_told)


def test_a_caption_names_what_is_done_to_the_images():
    asked, ladder = asked_of("svhn", "plp"), side_by_side(["ce"])
    assert conditions(expand(ladder, asked), ladder, asked).startswith("svhn; split plp; norm half")
    asked = asked_of("cub", "vit")
    caption = conditions(expand(ladder, asked), ladder, asked)
    assert caption.startswith("cub; resize 448; crop 384; vit_base_patch16_384")
    assert f"from the weights {WEIGHTS}" in caption


@pytest.mark.parametrize("own_recipes", [False, True])
@pytest.mark.parametrize("name", [None, QUICK, "focal"])
def test_a_run_says_its_recipe_in_one_line(name, own_recipes, capsys):
    asked = asked_of("cifar10", name, own_recipes, epochs=3)
    tell_recipe(asked, "OUT")
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith(f"OUT: recipe {name or QUICK} ({asked.recipe.title}")
    assert "but network.epochs 3" in told
    assert ("authors' recipe" in told) == own_recipes


@pytest.mark.ray
def test_a_run_that_has_nothing_to_do_says_no_recipe(tmp_path):
    words = ["compare", "ce", "--epochs", "1", "--out", tmp_path / "out"]
    first, again = here(*words), here(*words)
    title = DATASETS["digits"].quick.title
    assert f"{tmp_path / 'out'}: recipe quick ({title}), but network.epochs 1\n" in first.stderr
    assert (first.returncode, again.returncode) == (0, 0)
    assert "recipe" not in again.stderr


COMMANDS = [["ablate", "mac_cal"], ["compare", "ce"], ["search", "ls"]]
WRONG = {
    "none fits": (["--dataset", "cub"], "cub has no quick setting; name a --recipe that fits"),
    "another data set": (["--dataset", "cub", "--recipe", "focal"], "does not fit cub"),
    "of digits": (["--recipe", "plp"], "does not fit digits (it is for cifar10, cifar100, svhn)"),
    "misspelt": (["--recipe", "foca"], "did you mean 'focal'?"),
    "empty": (["--recipe", ""], "--recipe"),
    "backbone": (
        ["--dataset", "cifar10", "--backbone", "resnet50"],
        "was made for small_vgg, not for resnet50; name a --recipe that fits: quick, acls",
    ),
    "no such backbone": (["--dataset", "cifar10", "--backbone", "resnet5"], "unknown backbone"),
    "no weights": (["--dataset", "cub", "--recipe", "vit"], "give `network.weights` the safetens"),
    "weights gone": (
        ["--dataset", "cub", "--recipe", "vit", "--set", "network.weights=/no/such"],
        "network.weights: /no/such is no safetensors file",
    ),
}


@pytest.mark.parametrize("wrong", list(WRONG))
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
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
    "no string": (SWEEP + "    recipe: [focal]\n", 6, "must be a text"),
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
    path = tmp_path / "sweep.yaml"
    text = text.replace("OUT", str(tmp_path / "out"))
    path.write_text(text + ("    search: {trials: 2}\n" if search else ""))
    said = refusal("run", path, "--dry-run")
    # A search of an entry is of one of its methods, and its spec is built where that stands.
    line += search and wrong in ("backbone", "no weights")
    assert f"{path} line {line}: " in said
    assert told in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("at", ["top", "entry", "both"])
def test_the_recipe_of_an_entry_stands_above_that_of_the_file(at, tmp_path, cifar_root):
    text = SWEEP.replace("OUT", f"{tmp_path / 'out'}\ndata_root: {cifar_root}")
    text = ("recipe: focal\n" if at != "entry" else "") + text
    text += "    recipe: plp\n" if at != "top" else ""
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    (work,) = planned_works(read_sweep_file(path))
    assert work.asked.recipe.name == ("focal" if at == "top" else "plp")


@pytest.mark.ray
@pytest.mark.parametrize("command", [["compare", "ce"], ["search", "ls", "--trials", "1"]])
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
        said = refusal(*words)
        assert "was another one when it began" in said
    lab = Recipe(
        "lab", "a lab's", "nobody", {"network": {"backbone": "small_cnn"}}, datasets=("digits",)
    )
    monkeypatch.setitem(RECIPES._records, "lab", lab)
    monkeypatch.setitem(RECIPES._origins, "lab", None)
    said = refusal(*words, "--recipe", "lab")
    assert "recipe" in said
    # As it was it goes on.
    assert here(*words).returncode == 0
    assert Path(tmp_path / "out").exists()
