"""Given networks: trained by others, taken as their weights are."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.test_weights import network_of, saved
from tests.support import CPU
from tune_calib.data.cache import load_source
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank, load_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.network import build, predict
from tune_calib.engine.weights import start_from
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.metrics import scoring
from tune_calib.metrics.calibration import ece
from tune_calib.metrics.samples import Samples
from tune_calib.spec.ladder import LADDERS, build_comparison, expand, find_left_out
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.settings import resolve_spec
from tune_calib.spec.slots.network import OF_TRAINING, NetworkSlot
from tune_calib.spec.space import SPACES
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.caption import describe_setting, is_trained
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.search.definition import Candidates

HASH = "0123456789abcdef"
GIVEN = {"backbone": "small_cnn", "weights": HASH, "epochs": 0}


def request_with(**network) -> ResolvedRequest:
    settings = {"data": {"dataset": "digits"}, "network": {**GIVEN, **network}}
    return ResolvedRequest(settings).with_recipe()


@pytest.fixture
def frozen_network(tmp_path) -> tuple[TrialSpec, Store]:
    """A frozen network of digits, and the store that holds its weights."""
    file = saved(tmp_path / "w.safetensors", network_of())
    settings = {"data": {"norm": "dataset"}, "network": {**GIVEN, "weights": str(file)}}
    return resolve_files(
        ResolvedRequest(settings).with_recipe(), None, tmp_path / "store"
    ).spec(), Store(tmp_path / "store")


def test_the_artifact_of_a_frozen_network_is_made_without_training(frozen_network):
    spec, store = frozen_network
    run = NetworkTraining(spec, store, load_development(spec.data, None), CPU)
    assert run.step() is None
    run.close()
    trained, source = load_network(spec, store, CPU), network_of().state_dict()
    for name, tensor in trained.network.state_dict().items():
        assert torch.equal(tensor, source[name]), name
    assert trained.manifest["history"] == []
    assert trained.manifest["epoch"] == 0
    assert set(trained.manifest["regime"]) >= {"accuracy", "confidence_gap"}
    assert not list((store.root / "checkpoints").glob("*/*"))
    key = bank_key(spec, None)
    splits = load_development(spec.data, None), load_test(spec.data, None)
    bank = ensure_bank(FeatureBank, spec, key, store, lambda: splits, CPU)
    assert torch.equal(bank.own_head()[0], source["head.weight"])


@pytest.mark.parametrize("key", OF_TRAINING)
def test_a_training_setting_is_refused_by_its_name(key):
    others = {
        "optimizer": "adam", "select": "best_val_acc", "loss_reduction": "sum", "augment": "none",
        "milestones": (0.5,), "schedule": "cosine", "nesterov": True, "drop_last": True,
        "init": "timm", "clip_grad_norm": None,
    }  # fmt: skip
    value = others.get(key, {"batch_size": 7}.get(key, 0.25))
    with pytest.raises(UserError, match=rf"network\.{key}: a frozen network .* not trained"):
        request_with(**{key: value}).spec()
    with pytest.raises(UserError, match=rf"network\.{key}: a frozen network"):
        TrialSpec.build(network={**GIVEN, key: value})


@pytest.mark.parametrize("own_recipes", [False, True])
@pytest.mark.parametrize("recipe", [None, *RECIPES])
def test_no_recipe_changes_a_frozen_network(recipe, own_recipes):
    dataset = "digits" if recipe in (None, "quick") else RECIPES[recipe].datasets[0]
    settings = {"data": {"dataset": dataset, "norm": "dataset"}, "network": GIVEN}
    request = ResolvedRequest(settings, own_recipes=own_recipes).with_recipe(recipe)
    spec, plain = request.spec(), ResolvedRequest(settings).spec()
    assert spec.network == plain.network
    sizes = {"resize": spec.data.resize, "crop": spec.data.crop}
    assert spec.data == plain.data.model_copy(update=sizes)


def test_heads_are_trained_by_the_recipe():
    ladder = build_comparison(["mac_cal"])
    quick, focal = (
        expand(
            ladder,
            ResolvedRequest({"data": {"dataset": "cifar10"}, "network": GIVEN}).with_recipe(name),
        )
        for name in ("quick", "focal")
    )
    assert (quick[0].spec.head.augment, focal[0].spec.head.augment) == ("none", "standard")
    assert quick[0].spec.network_id == focal[0].spec.network_id


def test_a_frozen_network_on_images_of_the_users_own_needs_no_recipe():
    found = {"classes": 2, "channels": 3, "stored": 32, "size": 32, "mean": [0.5] * 3,
             "std": [0.5] * 3, "digest": "d"}  # fmt: skip
    settings = {"data": {"dataset": "imagefolder", "found": found}, "network": GIVEN}
    assert ResolvedRequest(settings).with_recipe().recipe is None
    assert ResolvedRequest({"data": settings["data"]}).with_recipe().recipe is not None
    with pytest.raises(UserError, match="no quick setting"):
        ResolvedRequest({"data": {"dataset": "svhn"}}).with_recipe()


@pytest.mark.parametrize("seeds", [Seeds.count(5, None, None), Seeds.count(None, None, 5),
                                   Seeds.count(None, 1, 5)])  # fmt: skip
def test_seeds_on_a_frozen_network_are_head_seeds(seeds):
    planned = expand(
        build_comparison(["ce", "retrain", "temperature"]), replace(request_with(), seeds=seeds)
    )
    assert [t.label for t in planned] == ["ce", *["retrain"] * 5, "temperature"]
    assert len({t.spec.hash for t in planned}) == 7
    assert {t.spec.network.seed for t in planned} == {0}
    assert [t.spec.head.seed for t in planned if t.spec.head] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": Seeds.count(None, 2, None)}, "there is only one frozen network"),
        (
            {"overrides": {"network": {"weights": HASH, "epochs": 0}}},
            "needs the name of its backbone",
        ),
        (
            {"overrides": {"network": {**GIVEN, "weights": None}}},
            "of a trained network as `weights`",
        ),
        ({"overrides": {"network": {**GIVEN, "method": "ls"}}}, "'ls' trains the network"),
        ({"overrides": {"network": {**GIVEN, "wieghts": 1}}}, "did you mean 'weights'"),
    ],
)
def test_impossible_frozen_networks_are_one_line(change, message):
    with pytest.raises(UserError, match=message) as told:
        resolve_spec(replace(request_with(), **change).overrides)
    assert "\n" not in str(told.value)


NETWORK_METHODS = [n for n in METHODS if METHODS[n].kind == "network" and n != "ce"]


@pytest.mark.parametrize("method", NETWORK_METHODS)
def test_a_method_that_trains_the_network_is_refused_where_it_is_named(method):
    with pytest.raises(UserError, match=f"{method}.* trains the network"):
        expand(build_comparison(["temperature", f"{method}+temperature"]), request_with())
    if method in SPACES:
        with pytest.raises(UserError, match="trains networks"):
            Candidates(method, request_with())


@pytest.mark.parametrize("controls", [False, True])
@pytest.mark.parametrize("name", list(LADDERS))
def test_ladders_on_frozen_networks_leave_out_training_rungs(name, controls):
    ladder, request = LADDERS[name], replace(request_with(), controls=controls)
    absent = {rung.label for rungs in find_left_out(ladder, request).values() for rung in rungs}
    for rung in ladder.rungs:
        trains = rung.adds_head_epochs or rung.slots.get("network", {}).get("method", "ce") != "ce"
        assert (rung.label in absent) == trains
    left = [rung.label for rung in ladder.rungs if rung.label not in absent]
    # Controls alone are no ladder.
    if not any(rung.label in left for rung in ladder.rungs if rung.kind != "control"):
        with pytest.raises(UserError, match="nothing is left"):
            expand(ladder, request)
        return
    planned = expand(ladder, request)
    labels = [
        r.label for r in ladder.rungs if r.label in left and (controls or r.kind != "control")
    ]
    assert [trial.label for trial in planned] == labels
    assert [trial.rung for trial in planned] == list(range(len(labels)))
    caption = describe_setting(planned, ladder, request)
    assert ("left out" in caption) == bool(absent)
    assert f"small_cnn as given (weights {HASH})" in caption
    assert "SGD" not in caption.partition("heads")[0]


@pytest.mark.parametrize("has_head", [False, True])
def test_the_caption_has_a_recipe_only_if_something_is_trained(has_head):
    request = ResolvedRequest({"data": {"norm": "dataset"}, "network": GIVEN}).with_recipe()
    ladder = build_comparison(["temperature", "retrain"] if has_head else ["temperature"])
    planned = expand(ladder, request)
    caption = describe_setting(planned, ladder, request)
    assert ("recipe quick" in caption) == is_trained(planned) == has_head
    assert caption.endswith("one recipe for all" if has_head else "nothing is trained")


def test_frozen_networks_are_identified_by_their_weights(tmp_path):
    files = [saved(tmp_path / f"{seed}.safetensors", network_of(seed=seed)) for seed in (1, 2)]

    def id_of(file: Path, **data) -> str:
        settings = {"data": data, "network": {**GIVEN, "weights": str(file)}}
        return (
            resolve_files(ResolvedRequest(settings).with_recipe(), None, tmp_path / "store")
            .spec()
            .network_id
        )

    info = TrialSpec.build(network={}).data.info
    assert id_of(files[0], norm="dataset") == id_of(files[0], norm=[info.mean, info.std])
    assert id_of(files[0], norm="dataset") != id_of(files[1], norm="dataset")
    assert id_of(files[0], norm="dataset") != id_of(files[0], norm=[[0.5], [0.5]])
    with pytest.raises(UserError, match=r"normalisation that this .*dataset.*imagenet"):
        id_of(files[0])
    with pytest.raises(UserError, match="has 1 channel, and constants for 3"):
        id_of(files[0], norm=[[0.5] * 3, [0.5] * 3])


def test_a_last_layer_of_other_classes_is_refused(tmp_path):
    file = saved(tmp_path / "w.safetensors", network_of(classes=100))
    settings = {"data": {"norm": "dataset"}, "network": {**GIVEN, "weights": str(file)}}
    with pytest.raises(UserError, match=r"last layer of .*\(100, 512\).*\(10, 512\)"):
        resolve_files(ResolvedRequest(settings).with_recipe(), None, tmp_path / "store")


def test_networks_without_weights_have_the_pinned_hash():
    assert TrialSpec.build(network={}).network_id == "c6ea9fbf1476d74c"
    slot = NetworkSlot(weights=HASH, epochs=1)
    assert not slot.is_frozen
    assert NetworkSlot(**GIVEN).is_frozen


# Depth, accuracy, ECE of 15 bins and NLL, as ../shared/networks has them.
PUBLISHED = {
    20: (0.9173, 0.05317, 0.3727),
    32: (0.9263, 0.05085, 0.3741),
    44: (0.9310, 0.04694, 0.3332),
    56: (0.9339, 0.04645, 0.3458),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """Decoded images, once for all networks."""
    return tmp_path_factory.mktemp("images")


@pytest.mark.slow
@pytest.mark.parametrize("depth", list(PUBLISHED))
def test_published_networks_give_their_published_accuracy(depth, cifar_root, images, tmp_path):
    file = cifar_root.parent / "networks" / "cifar10" / f"resnet{depth}.safetensors"
    if not file.exists():
        pytest.skip("no ../shared/networks")
    network = {"backbone": f"resnet{depth}_he", "weights": str(file), "epochs": 0}
    request = ResolvedRequest(
        {"data": {"dataset": "cifar10", "holdout": "test"}, "network": network}
    ).with_recipe()
    spec, store = resolve_files(request, cifar_root, tmp_path).spec(), Store(tmp_path)
    assert spec.data.norm == "imagenet"
    info = spec.data.info
    given, method = build(spec, 1)
    start_from(given, spec.network, store)
    test = load_source(info, cifar_root, images).test
    logits = predict(method, given, test.images, info)[1].double()
    right, error, nll = PUBLISHED[depth]
    samples = Samples(logits.softmax(1), test.labels, logits)
    assert float(scoring.accuracy(samples)) == pytest.approx(right, abs=1e-9)
    assert float(ece(samples)) == pytest.approx(error, abs=5e-6)
    assert float(scoring.nll(samples)) == pytest.approx(nll, abs=5e-5)


def test_published_networks_are_refused_the_images_that_they_were_trained_on():
    network = {"backbone": "resnet20_he", "weights": "02926273efb1dead"}
    for more in ({"epochs": 0}, {"epochs": 3}):  # also where they are trained on
        for data in ({}, {"split": "tst"}, {"train_fraction": 0.5}):
            with pytest.raises(UserError, match="use `holdout` test"):
                TrialSpec.build(data={"dataset": "cifar10", **data}, network={**network, **more})
        for data in ({"holdout": "test"}, {"split": "whole"}):
            TrialSpec.build(data={"dataset": "cifar10", **data}, network={**network, **more})
        TrialSpec.build(data={"dataset": "cifar100"}, network={**network, **more})
