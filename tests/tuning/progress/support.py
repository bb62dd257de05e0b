"""A driver's work at one moment."""

from tune_calib.progress import Activity
from tune_calib.tuning.progress.progress import Progress
from tune_calib.tuning.progress.work import TRIALS, Work

METRICS = {"select/accuracy": 0.912, "select/ece": 0.0312, "train/loss": 0.5}
NAMES = [f"network {n} of 5: + decaying adaptive sparsity, seed {n}" for n in range(1, 6)]


def at_work(running: int = 2, is_search: bool = False) -> Work:
    """A ladder with networks and heads in hand, or a search."""
    work = Work("search mac_cal" if is_search else "ablate mac_cal")
    unit = "suggestions" if is_search else TRIALS
    work.begin("networks and heads", 30, unit, {"networks": 5, "heads": 25})
    for name in NAMES[:running]:
        work.start(name, name, "networks", 1)
    work.hear(dict.fromkeys(NAMES, Activity("epoch", 7, 60, METRICS)))
    if is_search:
        work.show_search({}, ["so far: best ECE 1.20 % (trial 17)", "baseline: Accuracy 91.00 %"])
    return work


def progress(**changed: object) -> Progress:
    return Progress(**{**vars(at_work().record()), **changed})
