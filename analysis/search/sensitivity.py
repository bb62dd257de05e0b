"""Sensitivity around a point: what a metric loses if one setting changes at a time."""

from typing import Any

import numpy as np

from analysis.search.load import SearchResults, setting_cell
from analysis.tables.table import Table, table_of
from analysis.text import Cell
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.samplers import SAMPLERS


def find_varied(search: SearchResults, setting: str) -> dict[int, Any]:
    """Return the values of a setting by the number of the suggestions that vary it alone."""
    center = search.manifest.question.around or search.outcome.defaults
    varied = {}
    for suggestion in search.outcome.suggestions:
        others = (suggestion.point.keys() & center.keys()) - {setting}
        is_alone = all(suggestion.point[name] == center[name] for name in others)
        if suggestion.status == "done" and setting in suggestion.point and is_alone:
            varied[suggestion.number] = suggestion.point[setting]
    return varied if setting in center else {}


def sensitivity(search: SearchResults) -> list[Table]:
    """Build the table of what changes of one setting lose; none for searches of other samplers."""
    if not SAMPLERS[search.manifest.question.sampler].is_local:
        return []
    question, metric = search.manifest.question, METRICS[search.metrics[0]]
    center = question.around or search.outcome.defaults
    sign, rows, notes = 1 if metric.is_less_better else -1, [], list[str]()
    values = search.trials.set_index("spec_hash")[column("select", metric.name)]
    for name in search.settings:
        varied = find_varied(search, name)
        levels = sorted(varied, key=lambda number: str(varied[number]))
        is_range = "choices" not in search.outcome.settings[name]
        if is_range:
            levels = sorted(varied, key=varied.__getitem__)
        first = [number for number in levels if varied[number] == center[name]][:1]
        losses, noise = {}, {}
        for number in levels if first else ():
            reference = values.reindex(search.specs_of(first[0])).to_numpy()
            loss = sign * (values.reindex(search.specs_of(number)).to_numpy() - reference)
            losses[number] = float(loss.mean())
            noise[number] = float(loss.std(ddof=1)) / len(loss) ** 0.5 if len(loss) > 1 else np.nan
        if len(losses) < 2:
            continue
        flat = [number for number in levels if number in first or losses[number] <= noise[number]]
        text = ", ".join(setting_cell(varied[number]).text for number in flat)
        if is_range:  # the levels on both sides of the center, up to the first that loses more
            low = high = levels.index(first[0])
            while low > 0 and levels[low - 1] in flat:
                low -= 1
            while high < len(levels) - 1 and levels[high + 1] in flat:
                high += 1
            text = setting_cell(varied[levels[low]]).text
            if low < high:
                text += f" to {setting_cell(varied[levels[high]]).text}"
                notes.append(f"{name} from {text} loses at most the noise.")
        worst = max(losses, key=losses.__getitem__)
        rows.append([
            name, setting_cell(center[name]), Cell(text), setting_cell(varied[worst]),
            Cell.number(metric.name, losses[worst]), Cell.number(metric.name, noise[worst]),
        ])  # fmt: skip
    heads = ["setting", "center", "loses at most the noise", "worst", "loses", "noise"]
    caption = (
        f"{metric.title} on select if one setting alone differs from the center. Noise: standard "
        "error of the difference, paired by seed."
    )
    return [Table("sensitivity-rows", caption, table_of(heads, rows).records, notes=notes)]
