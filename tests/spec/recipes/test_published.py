"""Recipes and the values of methods, held against what their authors wrote."""

import pytest

from tests.spec.recipes.support import needs_stages, spec_of
from tune_calib.spec.datasets import NORMS
from tune_calib.spec.recipe import fitting

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
    **{("focal", ds): FOCAL for ds in ("cifar10", "cifar100", "imagefolder", "parquet")},
    ("focal", "tiny_imagenet"): (*SGD, 100, TINY, 64, "sum", 2.0, "last"),
    **{
        (name, ds): ACLS
        for name in ("acls", "fedlas")
        for ds in ("cifar10", "cifar100", "imagefolder", "parquet")
    },
    **{
        (name, "tiny_imagenet"): (*SGD, 100, TINY, 64, "mean", 2.0, "best_val_acc")
        for name in ("acls", "fedlas")
    },
    **{("tst", ds): TST for ds in ("cifar10", "cifar100", "svhn")},
    **{("plp", ds): PLP for ds in ("cifar10", "cifar100", "svhn")},
    **{("crl", ds): CRL for ds in ("cifar10", "cifar100", "svhn")},
    ("mdca", "cifar10"): (*SGD, 160, [80, 120], 128, "mean", None, "best_val_acc"),
    ("mdca", "cifar100"): (*SGD, 200, [100, 150], 128, "mean", None, "best_val_acc"),
    **{("vit", ds): VIT for ds in ("cub", "aircraft")},
    **{(name, ds): MBLS for name in ("mbls_cub", "fedlas_cub") for ds in ("cub", "aircraft")},
}


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
    **{("vit", ds): ("default", "imagenet", 448, 384) for ds in ("cub", "aircraft")},
    **{
        (name, ds): ("default", "imagenet", 256, 224)
        for name in ("mbls_cub", "fedlas_cub")
        for ds in ("cub", "aircraft")
    },
}


@pytest.mark.parametrize(("name", "dataset"), list(DATA))
def test_images_are_cut_normalised_and_resized_as_published(name, dataset):
    slot = spec_of(dataset, name).data
    info = slot.info
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
    *(("mbls", ds, name, None, {"margin": 10, "alpha": 0.05})
      for ds in FINE[1:] for name in ("vit", "fedlas_cub")),
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
    network = {"backbone": backbone} if backbone else {}
    for recipe in [name] if name else fitting(dataset):
        if recipe == "vit" and needs_stages(method):
            continue
        params = spec_of(dataset, recipe, method, **network).network.params
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
def test_plp_has_more_weight_decay_than_other_methods_of_its_code_base(dataset, decay):
    assert spec_of(dataset, "plp", "plp").network.weight_decay == decay
    assert spec_of(dataset, "plp", "mit_l").network.weight_decay == 1e-4
