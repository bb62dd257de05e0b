"""Whether two methods help together as much as alone: effects and interaction in a run."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analysis.compare.decision import Decision, decide_sums, decisions_table
from analysis.compare.network_check import compute_network_check
from analysis.load import Run
from analysis.tables.render import View
from tune_calib.errors import UserError
from tune_calib.spec.methods import METHODS
from tune_calib.spec.reproduction import Comparison


def interaction(run: Run, of: str, with_: str, metric: str, margin: float | None = None) -> View:
    """Return the effect of each method alone, of both, and their interaction.

    The interaction is the effect of both minus the sum of the effects alone: 0 if they add up.
    """
    first, second, pipeline = (_find_rung(run, names) for names in ((of,), (with_,), (of, with_)))
    base = run.bases[next(iter(run.bases))].label
    effects = {
        f"{first} - {base}": Comparison(first, (base,), metric),
        f"{second} - {base}": Comparison(second, (base,), metric),
        f"{pipeline} - {base}": Comparison(pipeline, (base,), metric),
        "interaction": Comparison(pipeline, (second,), metric, less=(first, base)),
    }
    decisions: list[Decision] = []
    for name, comparison in effects.items():
        # One by one, since they answer different questions.
        (decision,) = decide_sums(run, [comparison], margin)
        decisions.append(replace(decision, method=name, reference=""))
    table = decisions_table(decisions, "effect")
    rule = (
        f"{run.manifest.title}. Interaction: ({pipeline} - {second}) - ({first} - {base}), 0 if "
        "the effects add up; better means that both together gain more than the sum of the effects."
    )
    table = replace(table, caption=f"{rule} {table.caption}", is_main=True)
    frame = pd.DataFrame(decisions).rename(columns={"method": "effect"})
    frame = frame.drop(columns="reference")
    content = json.loads(frame.to_json(orient="records"))
    notes = [f"{compute_network_check(run).sentence}."]
    return View([replace(table, notes=notes)], content, frame, notes)


def _find_rung(run: Run, names: Sequence[str]) -> str:
    """Return the label of the rung with a pipeline of these methods, in any order."""
    wanted = sorted(map(METHODS.canonical, names))
    for label in run.labels.values():
        # A label begins with the pipeline; settings follow it.
        pipeline = label.split(" ")[0].split("+")
        if sorted(map(METHODS.canonical, pipeline)) == wanted:
            return label
    raise UserError(
        f"{run.out} has no {'+'.join(names)}, only {', '.join(run.labels.values())}; an "
        "interaction needs the base, each method alone and the pipeline of both in one run"
    )
