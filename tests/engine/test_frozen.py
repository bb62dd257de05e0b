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
from tune_calib.engine.network import build
from tune_calib.engine.predict import predict
from tune_calib.engine.weights import start_from
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.metrics import scoring
from tune_calib.metrics.calibration import ece
from tune_calib.metrics.samples import Samples
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.settings import resolve_spec
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.resolve import resolve_files

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
        ({"overrides": {"network": {"weights": HASH, "epochs": 0}}}, "needs its network.backbone"),
        ({"overrides": {"network": {**GIVEN, "method": "ls"}}}, "'ls' trains the network"),
    ],
)
def test_impossible_frozen_networks_are_one_line(change, message):
    with pytest.raises(UserError, match=message) as told:
        resolve_spec(replace(request_with(), **change).overrides)
    assert "\n" not in str(told.value)


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
