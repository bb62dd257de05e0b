"""What each figure of a report shows and how to read it, computed from the rows that it draws."""

from collections.abc import Iterable, Sequence

import pandas as pd

from analysis.compare.significance import Verdict
from analysis.ladder.figures.cost import cost_table, has_own_time
from analysis.ladder.figures.tradeoff import adaptive_rungs
from analysis.ladder.ladder import summary, trials_of_each
from analysis.load import Sweep

_TITLES = {
    "tradeoff": "ECE against accuracy on test",
    "reliability": "Reliability diagrams on test",
    "confidence": "Confidence on test, of right and wrong samples",
    "sparsity": "Sparsity over the epochs of stage II",
    "samples": "Gates of single samples over the epochs",
    "norm_confidence": "Feature norm against softmax confidence",
    "cost": "What the trials cost",
    "corruption": "ECE and accuracy on corrupted test images",
    "prototypes": "Classes in the logits",
    "critical_difference": "Mean ranks of the methods",
}
_READINGS = {
    "tradeoff": (
        "Small marks are single trials, large ones the means of rungs; low and to the right is "
        "better. Arrows join the steps of a ladder; of methods side by side the dashed line joins "
        "those that no other beats in both."
    ),
    "reliability": (
        "Accuracy of each bin against its confidence, the trials of a rung pooled; below, the "
        "share of samples in each bin on a log scale. Bars under the diagonal: over-confident. The "
        "lines show how far chance alone takes a calibrated network: test samples drawn anew with "
        "the shares of the bins, each right with the mean confidence of its bin."
    ),
    "confidence": (
        "Share of samples in each bin, the trials of a rung pooled, with accuracy and mean "
        "confidence as lines."
    ),
    "sparsity": (
        "What is kept, the largest step that it may take, and the accuracy and confidence on train "
        "that drive it."
    ),
    "samples": "Shares, flips, and the correlation of the indicator with correctness.",
    "norm_confidence": (
        "A dot a sample of select after the last epoch, with Pearson's r and Spearman's rho."
    ),
    "cost": (
        "Memory is the peak of the process, which may have run other trials before; the network "
        "under a head or a post-hoc method is in neither."
    ),
    "corruption": (
        "Noise, blur and loss of contrast of five severities, made here from the test split: not "
        "CIFAR-10-C."
    ),
    "prototypes": (
        "t-SNE of some hundred test samples, and the angles between the mean logits of the "
        "classes, less their common mean."
    ),
    "critical_difference": (
        "Friedman's test over the blocks; bars join methods that Nemenyi's does not tell apart."
    ),
}
_ONE_TRIAL = "One trial of each rung, that of the smallest seeds."
_OWN_TIME = (
    "Time of training and evaluation, without setting up: of a head its share of those that were "
    "trained together, of a post-hoc method the fit and the evaluation."
)
_RAY_TIME = (
    "These results are older than the record of a trial's own time: that of its Ray trial is "
    "shown, with setting up and warming up, for heads over how many were trained together. A "
    "post-hoc method has none, for its Ray trial trained the network."
)


def captions_of(
    sweep: Sweep, statistics: pd.DataFrame, verdicts: Sequence[Verdict]
) -> dict[str, tuple[str, str]]:
    """Title and text of every figure that a sweep may have, by name of its files.

    Args:
        sweep: the results.
        statistics: as of ``samples.sample_statistics``.
        verdicts: as of ``significance.for_report``.
    """
    bins = sweep.bins.loc[sweep.bins["split"] == "test", "spec_hash"].unique()
    told = {
        "tradeoff": f"Large marks: {summary(sweep)}.",
        "reliability": f"Pooled are {_numbers(sweep, bins)}; ECE: {summary(sweep)}.",
        "confidence": f"Pooled are {_numbers(sweep, bins)}.",
        "sparsity": f"Mean, and a band from the smallest to the largest; {_sparsity(sweep)}.",
        "samples": (
            "Mean, and (of few rungs) a band from the smallest to the largest; "
            f"{_numbers(sweep, statistics['spec_hash'])}."
        ),
        **dict.fromkeys(("norm_confidence", "corruption", "prototypes"), _ONE_TRIAL),
        "cost": _cost(sweep),
        "critical_difference": " ".join(
            f"Complete blocks: {verdict.friedman.blocks}; a block is a {verdict.friedman.unit}."
            for verdict in verdicts
            if verdict.friedman is not None
        ),
    }
    return {key: (title, f"{_READINGS[key]} {told[key]}") for key, title in _TITLES.items()}


def capital(text: str) -> str:
    """The text with a capital at its start."""
    return f"{text[0].upper()}{text[1:]}"


def _numbers(sweep: Sweep, hashes: Iterable[str]) -> str:
    return trials_of_each(sweep.numbers(hashes) or [0])


def _sparsity(sweep: Sweep) -> str:
    moving = [sweep.curves_of(rung.index, "q")["spec_hash"] for rung in adaptive_rungs(sweep)]
    return _numbers(sweep, pd.concat(moving).unique() if moving else [])


def _cost(sweep: Sweep) -> str:
    table = cost_table(sweep)
    numbers = trials_of_each(list(table["n"]) or [0])
    time = _OWN_TIME if has_own_time(sweep) else _RAY_TIME
    return f"{time} Medians, and lines from the least to the most; {numbers}."
