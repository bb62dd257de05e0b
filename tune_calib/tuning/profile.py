"""Profiles of an epoch, in ``OUT/profiles/NETWORK.json``, one for each network."""

import json

import pandas as pd

from analysis.tables.table import table_of
from tune_calib.console import Text
from tune_calib.paths import AnyPath, atomic_write
from tune_calib.spec.trial import TrialSpec

FOLDER = "profiles"


def write_profile(out: AnyPath, spec: TrialSpec, samples: int, seconds: dict[str, float]) -> None:
    """Write the seconds of each phase of the profiled epoch of a network."""
    about = {
        "network": spec.network_id,
        "method": spec.network.method,
        "backbone": spec.network.backbone,
        "dataset": spec.data.dataset,
        "precision": spec.network.precision,
        "seed": spec.network.seed,
        "images": samples,
        "seconds": seconds,
    }
    atomic_write(out / FOLDER / f"{spec.network_id}.json", json.dumps(about, indent=2).encode())


def format_profiles(out: AnyPath) -> str:
    """Format the profiles as a table: a row per phase, as a share of the epoch."""
    texts = {str(path): path.read_bytes() for path in (out / FOLDER).glob("*.json")}
    profiles = [json.loads(texts[name]) for name in sorted(texts)]
    if not profiles:
        return "no network was trained, so that nothing was profiled"
    frame = pd.DataFrame([each["seconds"] for each in profiles]).T
    shares = (frame / frame.sum()).map("{:.1%}".format)
    rates = [
        f"{each['images'] / whole:.0f}" for each, whole in zip(profiles, frame.sum(), strict=True)
    ]
    shares.loc["images a second"] = rates
    heads = ["", *(f"{each['method']}, seed {each['seed']}" for each in profiles)]
    rows = [[str(cell) for cell in row] for row in shares.itertuples()]
    return Text([table_of(heads, rows)])
