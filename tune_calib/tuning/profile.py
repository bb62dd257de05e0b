"""Print the profiles of an epoch, which networks wrote into ``OUT/profiles/NETWORK.json``."""

import json

from analysis.tables.table import table_of
from tune_calib.console import Text
from tune_calib.paths import AnyPath
from tune_calib.tuning.folder import PROFILES


def format_profiles(out: AnyPath) -> str:
    """Format the profiles as a table: a row per phase, as a share of the epoch."""
    texts = {str(path): path.read_bytes() for path in (out / PROFILES).glob("*.json")}
    profiles = [json.loads(texts[name]) for name in sorted(texts)]
    if not profiles:
        return "no network was trained, so that nothing was profiled"
    whole = [sum(each["seconds"].values()) for each in profiles]
    both = list(zip(profiles, whole, strict=True))
    phases = dict.fromkeys(phase for each in profiles for phase in each["seconds"])
    rows = [
        [phase, *(f"{each['seconds'].get(phase, 0) / total:.1%}" for each, total in both)]
        for phase in phases
    ]
    rows.append(["images a second", *(f"{each['images'] / total:.0f}" for each, total in both)])
    heads = ["", *(f"{each['method']}, seed {each['seed']}" for each in profiles)]
    return Text([table_of(heads, rows)])
