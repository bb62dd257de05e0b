"""A sweep folder with invented numbers, for tests of the analysis alone."""

import json
from pathlib import Path

import numpy as np

from tune_calib.results import write_results

LABELS = ("vanilla", "+ one", "+ two", "control")
KINDS = ("base", "step", "step", "control")


def write(
    out: Path,
    seeds: int = 3,
    published: bool = True,
    bad: str | None = None,
    bad_rungs: tuple[int, ...] = (2,),
    kinds: tuple[str, ...] = KINDS,
) -> None:
    """Write a sweep of three rungs and a control.

    Args:
        out: folder.
        seeds: paired seeds.
        published: rows are named as in maccal/table5.
        bad: status of all trials of ``bad_rungs``, which then have no metrics.
        bad_rungs: rungs that fail if ``bad`` is given.
        kinds: of the rungs.
    """
    names = ("Vanilla", "+Masked Retraining", "+Gradient Restriction", None)
    rungs = [
        {
            "index": i,
            "label": label,
            "ingredient": label,
            "published": names[i] if published else None,
            "kind": kinds[i],
        }
        for i, label in enumerate(LABELS)
    ]
    planned = [
        {"spec_hash": f"{i}-{s}", "rung": i, "network_seed": s, "head_seed": s if i else None}
        for i in range(len(LABELS))
        for s in range(seeds)
    ]
    manifest = {
        "version": 1,
        "sweep": "fake",
        "ladder": "mac_cal",
        "title": "Invented",
        "command": "tune-calib ablate mac_cal",
        "dataset": "digits",
        "setting": "invented numbers",
        "published": "maccal/table5" if published else None,
        "rungs": rungs,
        "network_seeds": list(range(seeds)),
        "head_seeds": list(range(seeds)),
        "paired_seeds": True,
        "planned": planned,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "sweep.json").write_text(json.dumps(manifest))
    for entry in planned:
        _write_trial(out, entry, "done" if bad is None or entry["rung"] not in bad_rungs else bad)


def value(rung: int, seed: int) -> float:
    """The invented ECE of a trial."""
    return 0.10 - 0.02 * rung + 0.01 * seed


def _write_trial(out: Path, entry: dict, status: str) -> None:
    rung, seed = entry["rung"], entry["network_seed"]
    row = {
        "schema_version": 1,
        "spec_hash": entry["spec_hash"],
        "rung": rung,
        "rung_label": LABELS[rung],
        "network_seed": seed,
        "head_seed": entry["head_seed"],
        "data": '{"dataset":"digits","label_noise":0.2,"train_fraction":1.0}',
        "dataset": "digits",
        "backbone": "small_cnn",
        "status": status,
        "message": None if status == "done" else "the loss is not finite",
    }
    if status == "done":
        ece = value(rung, seed)
        metrics = {"accuracy": 0.9 - 0.01 * rung, "ece": ece, "aece": ece, "mce": 0.5, "nll": 0.4}
        row |= {f"test/{name}": number for name, number in metrics.items()}
    curves = [
        {"spec_hash": entry["spec_hash"], "epoch": e, "name": name, "value": 0.5 + 0.01 * e}
        for e in (1, 2, 3)
        for name in ("q", "tau", "train/accuracy", "train/confidence")
        if rung == 2
    ]
    edges = np.linspace(0, 1, 16)
    bins = [
        {
            "spec_hash": entry["spec_hash"],
            "split": "test",
            "bin": b,
            "lower": edges[b],
            "upper": edges[b + 1],
            "count": 10 * (b > 5) * (seed + 1),
            "confidence": (edges[b] + edges[b + 1]) / 2,
            "accuracy": edges[b],
        }
        for b in range(15)
    ]
    tables = {"trials": [row], "curves": curves, "bins": bins if status == "done" else []}
    write_results(out, entry["spec_hash"], tables)
