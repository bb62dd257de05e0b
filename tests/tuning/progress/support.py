"""A driver's tracker at one moment."""

from tune_calib.progress import ProgressEvent
from tune_calib.tuning.progress.tracker import TRIALS, Progress, Tracker

METRICS = {"select/accuracy": 0.912, "select/ece": 0.0312, "train/loss": 0.5}
NAMES = [f"network {n} of 5: + decaying adaptive sparsity, seed {n}" for n in range(1, 6)]


def busy_tracker(running: int = 2, is_search: bool = False) -> Tracker:
    """A ladder with networks and heads in hand, or a search."""
    tracker = Tracker("search mac_cal" if is_search else "ablate mac_cal")
    unit = "suggestions" if is_search else TRIALS
    tracker.begin("networks and heads", 30, unit, {"networks": 5, "heads": 25})
    for name in NAMES[:running]:
        tracker.start(name, name, "networks", 1)
    tracker.update(dict.fromkeys(NAMES, ProgressEvent("epoch", 7, 60, METRICS)))
    if is_search:
        tracker.set(notes=["so far: best ECE 1.20 % (trial 17)", "baseline: Accuracy 91.00 %"])
    return tracker


def progress(**changed: object) -> Progress:
    return Progress(**{**vars(busy_tracker().record()), **changed})
