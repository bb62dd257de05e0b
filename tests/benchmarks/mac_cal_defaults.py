"""The defaults of MaC-Cal, chosen on ``select`` alone: reading, learning rate and gamma.

python -m tests.benchmarks.mac_cal_defaults

Networks that fit their training data and are over-confident: four published ResNets for CIFAR-10,
whose ``select`` and ``calib`` are a quarter of the published test part each (they saw all of the
training part; the other half is never opened), and networks of our own, whose ``test`` is never
opened. The rule, fixed before anything was run: the smallest mean over the networks of a data set
of the ECE on ``select``, among the settings that lose on average at most one point of accuracy
against the networks' own heads. First a reading is chosen, each at its best learning rate and
gamma; then learning rate and gamma of that reading, under three head seeds.
"""

import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from tests.benchmarks.common import CIFAR10_ROOT, CPU
from tune_calib.data.cache import load_source
from tune_calib.data.splits import Development, load_development
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import DevelopmentBank, FeatureSplit, bank_key, build_bank
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.predict import TrainedNetwork, predict
from tune_calib.engine.weights import match_weights, read
from tune_calib.files.store import Store
from tune_calib.methods._base import NetworkContext
from tune_calib.metrics.summary import evaluate
from tune_calib.models.network import build_network
from tune_calib.spec.datasets import DATASETS, NORMS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec

FOLDER = Path("runs/mac_cal-defaults")
PUBLISHED = CIFAR10_ROOT.parent / "networks" / "cifar10"
LOST = 0.01
HEADS = 25
BY = ["reading", "lr", "gamma"]

READINGS: dict[str, dict[str, Any]] = {
    "in place, stored weights": {"masking": "destructive", "evaluation": "dense"},
    "functional, stored weights": {"masking": "functional", "evaluation": "dense"},
    "functional, q times weights": {"masking": "functional", "evaluation": "expected"},
    "functional, last mask": {"masking": "functional", "evaluation": "last_mask"},
    "functional, a mask a batch, stored weights": {
        "masking": "functional", "evaluation": "dense", "refresh": "batch",
    },
    "functional, a mask a batch, q times weights": {
        "masking": "functional", "evaluation": "expected", "refresh": "batch",
    },
}  # fmt: skip
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
GAMMAS = (0.75, 0.85, 0.95, 1.0, "val_ratio")

OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "small_cnn, 30 %": ("cifar10", {"data": {"train_fraction": 0.3}}),
    "small_cnn, 10 %": ("cifar10", {"data": {"train_fraction": 0.1}, "network": {"epochs": 60}}),
    "small_cnn, noisy labels, 0": ("digits", {}),
    "small_cnn, noisy labels, 1": ("digits", {"network": {"seed": 1}}),
}


@dataclass(frozen=True)
class Frozen:
    """A frozen network of which heads are retrained: data set, its bank, batch of a head."""

    dataset: str
    bank: DevelopmentBank
    batch_size: int


def published(name: str, development: Development) -> Frozen:
    """A published network, its bank made once."""
    folder = FOLDER / "published" / name
    if not (folder / "manifest.json").exists():
        file = PUBLISHED / f"{name}.safetensors"
        network = build_network(f"{name}_he", "reference", 3, 32, 10, seed=0)
        network.load_state_dict(match_weights(network, read(file), str(file), is_frozen=True)[0])
        mean, std = NORMS["imagenet"]
        info = replace(DATASETS["cifar10"], mean=mean, std=std)
        record = METHODS["ce"]
        context = NetworkContext(10, 64, len(development.train), 1, 0)
        method = record.implementation(record.params(), context)
        accuracies = {}
        for part in ("train", "select"):
            split = getattr(development, part)
            right = predict(method, network, split.images, info)[1].argmax(1) == split.labels
            accuracies[part] = float(right.double().mean())
        spec = TrialSpec.build(network={}, head={"method": "mac_cal", "augment": "none"})
        key = bank_key(spec, spec.head)
        trained = TrainedNetwork(network, method, {"accuracy": accuracies})
        build_bank(folder, key, trained, info, development, None)
    return Frozen("cifar10", DevelopmentBank(folder), 128)


@functools.cache
def seen_and_held_out() -> Development:
    """15,000 images that the published networks saw, and half of those that they did not."""
    source = load_source(DATASETS["cifar10"], CIFAR10_ROOT, FOLDER / "images")
    order = torch.randperm(len(source.test), generator=torch.Generator().manual_seed(0))
    return Development(
        source.train.take(torch.arange(15_000)),
        source.test.take(order[:2500]),
        source.test.take(order[2500:5000]),
    )


def own(name: str) -> Frozen:
    """A network of our own, trained once by its data set's settings."""
    dataset, changed = OWN[name]
    defaults = DATASETS[dataset].quick.settings
    slots = {slot: {**defaults[slot], **changed.get(slot, {})} for slot in ("data", "network")}
    slots["data"]["dataset"] = dataset
    head = {"method": "mac_cal", "augment": "none"}
    spec = TrialSpec.build(**slots, head=head)
    store, root = Store(FOLDER / "store"), CIFAR10_ROOT
    splits = functools.partial(load_development, spec.data, root, store.images)
    run = NetworkTraining(spec, store, splits(), CPU)
    while run.step() is not None:
        pass
    run.close()
    key, shown = bank_key(spec, spec.head), lambda: (splits(), None)
    bank = ensure_bank(DevelopmentBank, spec, key, store, shown, CPU)
    return Frozen(dataset, bank, defaults["head"].get("batch_size", 128))


def frozen() -> Iterator[tuple[str, Frozen]]:
    for name in OWN:
        yield name, own(name)
    for path in sorted(PUBLISHED.glob("*.safetensors")):
        yield f"published {path.stem}", published(path.stem, seen_and_held_out())


def measured(logits: Tensor, split: FeatureSplit) -> list[dict[str, float]]:
    """Metrics of K classifiers on ``select``: logits (K, N, C)."""
    logits = logits.double()
    scores = evaluate(logits, split.labels)
    gap = logits.softmax(-1).amax(-1).mean(-1) - scores["accuracy"]
    names = {name: scores[name] for name in ("accuracy", "ece", "nll")} | {"gap": gap}
    return [{name: float(v[k]) for name, v in names.items()} for k in range(len(logits))]


def base_rows(name: str, network: Frozen) -> Iterator[dict[str, Any]]:
    """The network's own head, and the same with the temperature that ``calib`` gives."""
    select, calib = network.bank.select(), network.bank.calib()
    record = METHODS["temperature"]
    scaling = record.implementation(record.params())
    scaling.fit(calib.logits[None], calib.labels)
    heads = {"own head": select.logits[None], "temperature": scaling.transform(select.logits[None])}
    for kind, logits in heads.items():
        fits = network.bank.manifest["accuracy"]["train"]
        fields = {"network": name, "dataset": network.dataset, "reading": kind, "train": fits}
        yield {**fields, **measured(logits, select)[0]}


def head_rows(
    name: str, network: Frozen, readings: Mapping[str, dict[str, Any]], seeds: int
) -> Iterator[dict[str, Any]]:
    """Every reading, learning rate and gamma on one network."""
    grid = list(itertools.product(RATES, GAMMAS, range(seeds)))
    for reading, params in readings.items():
        for start in range(0, len(grid), HEADS):
            part = grid[start : start + HEADS]
            slots = [slot(network, params, *point) for point in part]
            trainer = HeadBatchTrainer(slots, network.bank, 0, CPU)
            for _ in trainer:
                pass
            select = network.bank.select()
            for point, scores in zip(part, measured(trainer.predict(select), select), strict=True):
                fields = dict(zip(("lr", "gamma", "seed"), point, strict=True))
                yield {"network": name, "dataset": network.dataset, "reading": reading} | {
                    **fields, **scores
                }  # fmt: skip


def slot(
    network: Frozen, params: dict[str, Any], lr: float, gamma: float | str, seed: int
) -> HeadSlot:
    settings = {"lr": lr, "seed": seed, "augment": "none", "batch_size": network.batch_size}
    spec = TrialSpec.build(
        network={}, head={"method": "mac_cal", **settings, "params": {**params, "gamma": gamma}}
    )
    assert spec.head is not None
    return spec.head


def chosen(rows: pd.DataFrame, bases: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means over networks by setting, those within the guard first, best ECE first."""
    accuracies = bases[bases["reading"] == "own head"].set_index("network")["accuracy"]
    table = rows.assign(lost=rows["network"].map(accuracies) - rows["accuracy"])
    means = table.groupby(by, sort=False)[["ece", "nll", "gap", "lost"]].mean()
    means["is_within"] = means["lost"] <= LOST
    return means.sort_values(["is_within", "ece"], ascending=[False, True])


def cached_rows(name: str, make: Any) -> pd.DataFrame:
    """Rows of one step, measured once."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        path.write_text(json.dumps(list(make()), indent=1))
    return pd.DataFrame(json.loads(path.read_text()))


def main() -> None:
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    bases, rows = [], []
    networks = dict(frozen())
    for name, network in networks.items():
        key = "".join(c if c.isalnum() else "_" for c in name)
        bases.append(cached_rows(f"base-{key}", functools.partial(base_rows, name, network)))
        make = functools.partial(head_rows, name, network, READINGS, 1)
        rows.append(cached_rows(f"readings-{key}", make))
    base, all_rows = pd.concat(bases), pd.concat(rows)
    print(base.round(4).to_string(index=False))
    for dataset, part in all_rows.groupby("dataset"):
        table = chosen(part, base, BY)
        print(f"\n{dataset}: each reading at its best\n")
        print(table.groupby("reading", sort=False).head(1).round(4).to_string())
    # Of the real images; what digits say of it is printed beside.
    best = chosen(all_rows[all_rows["dataset"] == "cifar10"], base, BY).index[0][0]
    finer = []
    for name, network in networks.items():
        key = "".join(c if c.isalnum() else "_" for c in name)
        make = functools.partial(head_rows, name, network, {best: READINGS[best]}, 3)
        finer.append(cached_rows(f"finer-{key}", make))
    for dataset, part in pd.concat(finer).groupby("dataset"):
        print(f"\n{dataset}: {best}, three head seeds\n")
        print(chosen(part, base, ["lr", "gamma"]).round(4).to_string())


if __name__ == "__main__":
    main()
