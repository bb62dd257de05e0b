"""The classes in the logits: angles between their prototypes, and a t-SNE map.

As MaC-Cal, Fig. 2, but of logits: the prototype of a class is the mean logit vector of its test
samples, less the mean of all classes, so that heads of any shape compare.
"""

from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from tune_calib.results.manifests import RungRecord
from tune_calib.results.tables import read_table

COLUMNS = 4
_SEED = 0
_MAP = "tab20"  # not the style's colours, which mean methods
_NUMBERED = 20

Floats = NDArray[np.float64]


def logits_of(sweep: Sweep) -> dict[int, tuple[Floats, NDArray[np.int64]]]:
    """Return logits (N, C) and labels (N,) of one trial of each rung, by the rung's index."""
    kept = read_table(sweep.out, "logits").to_pandas()
    rungs = sweep.trials.set_index("spec_hash")["rung"]
    rungs = rungs[rungs.index.isin(kept["spec_hash"])].drop_duplicates()  # of each the first
    found = {}
    for spec_hash, rows in kept.groupby("spec_hash"):
        if spec_hash in rungs.index:
            values = np.stack(rows["logits"].tolist()).astype(float)
            found[int(rungs[spec_hash])] = (values, rows["label"].to_numpy(dtype=np.int64))
    return dict(sorted(found.items()))


def angles(logits: Floats, labels: NDArray[np.int64]) -> Floats:
    """Return the angles in degrees between the prototypes of every two classes with samples."""
    means = np.stack([logits[labels == label].mean(0) for label in np.unique(labels)])
    centred = means - means.mean(0)
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    above = np.triu_indices(len(units), k=1)
    # Rounding may take a cosine past 1, where there is no angle.
    found: Floats = np.degrees(np.arccos((units @ units.T)[above].clip(-1, 1)))
    return found


def draw_prototypes(results: LadderResults) -> Drawing | None:
    """Draw for each rung the t-SNE map of its logits, and the spread of the angles."""
    known = logits_of(results.sweep)
    if not known:
        return None
    rungs = [rung for rung in results.sweep.rungs if rung.index in known]
    rows = -(-len(rungs) // COLUMNS)
    figure, axes = plt.subplots(
        rows, COLUMNS, figsize=(style.TEXT_IN, 2.0 * rows + 0.6), squeeze=False
    )
    for index, axis in enumerate(axes.flat):
        axis.set_xticks([])
        axis.set_yticks([])
        if index < len(rungs):
            _map(axis, rungs[index], *known[rungs[index].index])
        else:
            axis.set_axis_off()
    return figure


def _map(axis: Axes, rung: RungRecord, logits: Floats, labels: NDArray[np.int64]) -> None:
    perplexity = min(30.0, (len(logits) - 1) / 3)
    # On one thread: quick enough for some hundred samples, and the same places everywhere.
    with threadpool_limits(1):
        points = TSNE(perplexity=perplexity, init="pca", random_state=_SEED).fit_transform(logits)
    axis.scatter(
        points[:, 0], points[:, 1], c=labels % 20, cmap=_MAP, s=4, linewidths=0, rasterized=True
    )
    found = angles(logits, labels)
    span = f"{found.min():.0f}° to {found.max():.0f}°, sd {found.std():.1f}°"
    label = "\n".join(wrap(rung.label, 28))
    axis.set_title(f"{label}\n{span}, {len(labels)} samples", fontsize=6.5)
    classes = np.unique(labels)
    for label in classes if len(classes) <= _NUMBERED else ():
        middle = np.median(points[labels == label], axis=0)
        axis.annotate(
            str(label), middle, fontsize=7, ha="center", va="center", weight="bold",
            bbox={"boxstyle": "circle,pad=0.1", "facecolor": "white", "alpha": 0.8, "linewidth": 0},
        )  # fmt: skip


def _caption(results: LadderResults) -> str:
    known = logits_of(results.sweep)
    if not known:
        return ""
    classes = len(np.unique(next(iter(known.values()))[1]))
    even = np.degrees(np.arccos(-1 / (classes - 1)))
    return f"Evenly spread classes have {even:.1f}° between any two."


LADDER_FIGURES.register(
    Figure(
        name="prototypes",
        title="Classes in the logits",
        reading=(
            "t-SNE of some hundred test samples, a colour and a number a class (distances between "
            "groups mean little), and the angles between the mean logits of two classes, less "
            "their common mean: least, largest and sd. One trial of each rung, that of the "
            "smallest seeds."
        ),
        draw=draw_prototypes,
        caption=_caption,
        position=90,
    )
)
