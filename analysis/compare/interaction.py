"""Whether two methods help together as much as alone: effects and interaction in a run."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analysis.compare.decision import decide_sums, decisions_table
from analysis.compare.network_check import compute_network_check
from analysis.load import Run
from analysis.tables.latex import label_of
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
    labels = (first, second, pipeline)
    effects = decide_sums(run, [Comparison(label, (base,), metric) for label in labels], margin)
    # Apart from the effects, since it answers another question.
    sum_of_rungs = Comparison(pipeline, (second,), metric, less=(first, base))
    (decision,) = decide_sums(run, [sum_of_rungs], margin)
    decision = replace(decision, method="interaction", reference="")
    table = decisions_table([decision], "effect")
    label = label_of("interaction", metric)
    rule = (
        f"({pipeline} - {second}) - ({first} - {base}), 0 if the effects add up; better means that "
        "both together gain more than the sum of the effects."
    )
    notes = [f"{compute_network_check(run).sentence}."]
    tables = [
        replace(decisions_table(effects, f"against {base}"), is_main=True),
        replace(
            table, key="interaction", caption=f"{rule} {table.caption}", label=label, notes=notes
        ),
    ]
    frame = pd.DataFrame([*effects, decision])
    return View(tables, json.loads(frame.to_json(orient="records")), frame, notes)


def _find_rung(run: Run, names: Sequence[str]) -> str:
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
