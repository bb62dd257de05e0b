"""The table of a tuned comparison: what the searches of its methods have chosen."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.load import Run, cached_per_run
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import NOTHING, Cell, capital
from tune_calib.results.manifests import TunedManifest, TunedMethod
from tune_calib.results.selection import describe_reads
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import TUNED
from tune_calib.text import format_count, format_setting


@cached_per_run
def find_manifest(run: Run) -> TunedManifest | None:
    """Read what was tuned; None for a run without searches."""
    return TunedManifest.read(run.out) if (run.out / TUNED).exists() else None


def table(run: Run) -> Table:
    manifest = find_manifest(run)
    if manifest is None:
        return Table("tuned", "", [])
    head = f"{METRICS[manifest.metric].title} on select"
    records = []
    for method in manifest.methods:
        values = pd.Series([method.published_value, method.tuned_value], dtype=float)
        published, best = (Cell.number(manifest.metric, value) for value in values)
        if method.published_value is not None and not method.is_within:
            published = Cell(f"{published.text} (beyond the guard)", published.value)
        cells = {
            "method": Cell(method.label),
            "tuned settings": Cell(_describe_choice(method)),
            f"{head}, published": published,
            f"{head}, tuned": best,
            "searched": Cell.of(len(method.searched)),
            "suggestions": Cell.of(method.suggestions),
            "cost (s)": Cell.measured(method.cost_s) if method.folder else NOTHING,
            "published settings": Cell(_format_settings(method.published)),
        }
        records.append(cells)
    budget = format_count(manifest.suggestions, "suggestion")
    caption = (
        f"Each method was searched with {budget}, fewer if its settings have fewer values; "
        f"{manifest.rule}. Tuned settings that are not named are the published ones. Searched: the "
        f"number of settings. {capital(describe_reads(manifest.reads))}."
    )
    label = label_of("tuned", run.manifest.dataset)
    first = [*records[0]][1:]
    return Table("tuned", caption, records, label=label, first=first, is_one_tabular=True)


def list_commands(run: Run) -> list[str]:
    manifest = find_manifest(run)
    return [] if manifest is None else [method.command for method in manifest.methods]


def _describe_choice(method: TunedMethod) -> str:
    if not method.folder:
        return "nothing to search"
    if method.tuned is None:
        return "none within the guard"
    published = method.published
    changed = {key: value for key, value in method.tuned.items() if published.get(key) != value}
    return _format_settings(changed) or "the published ones"


def _format_settings(settings: Mapping[str, Any]) -> str:
    texts = []
    for name, value in settings.items():
        text = f"{value:.3g}" if isinstance(value, float) else format_setting(value)
        texts.append(f"{name} {text}")
    return ", ".join(texts)
