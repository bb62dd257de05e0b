"""Reserved names of slots, files, statuses and flags, defined only here."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tune_calib.text import format_count

# Kinds of CIFAR-10-C (Hendrycks and Dietterich, ICLR 2019) in its order, without its extra ones.
CORRUPTION_KINDS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur",
    "zoom_blur", "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate",
    "jpeg_compression",
)  # fmt: skip
NOT_GENERATED = ("frost",)  # one of them, which needs artwork

SLOTS = ("data", "network", "head", "posthoc")

POOL = "pool:"
"""Beginning of the name of a pool in a comparison, e.g. ``pool:ce:ls``."""

IMPORTED = "imported"
"""Name of the data set and the backbone of imported features and logits."""

REPORTED = ("select", "test")  # splits with metrics

NOT_SETTINGS = ("seed", "method", "params", "plugin", "pool")  # keys that identify what is run

SEARCH_MANIFEST = "search.json"
SEARCH_OUTCOME = "outcome.json"
REUSED = "reused"  # folder with the rows that a search takes from earlier ones
SEARCH_EVALUATED = "evaluated.json"  # whether, when and how often a search read the test split
TUNED = "tuned.json"  # what the searches of a tuned comparison have chosen, and its test reads
PROGRESS = "progress.json"  # of the running driver, in the folder of the results
JOURNAL = "study.log"  # the Optuna study of a search, unless it is in a database
CRASHES = "crashes.txt"  # tracebacks of trials that crashed, in the folder of the results

IN_PROCESS = "none"  # the address of runs without Ray

REPLAYED = "replay"  # in the column ``device``: a table answered the trial, which was not trained
WATCHED = ("accuracy", "nll", "ece")  # on select, reported by a network after every epoch

LEAST_DRAWS = 100
"""With fewer draws, the ends of a 95 % interval are single draws."""

STATUSES = ("done", "diverged", "crashed")
ENDED_EARLY = ("raced", "stopped")  # further statuses of suggestions, whose trials are done

SHORT_BASELINE = -2  # in the column ``rung``: a baseline with fewer epochs than that of a search


@dataclass(frozen=True)
class Flag:
    """A warning about the numbers of a finished trial."""

    name: str  # in the column ``flags`` of trials, where several are joined by commas
    sign: str  # printed after the name of a row
    meaning: str  # without a full stop


CHANCE, FEW_IMAGES = "chance", "few_images"
CONTROL = "trivial_control"
NEVER_BEST = (CHANCE, CONTROL)
"""Flags of trials that no table, rank or headline calls the best."""
LEAST_IMAGES = 100
"""Images of select and calib together below which none is called at chance."""
HEAD_BELOW = "head_below_network"
"""Flag that is computed when results are read; rows do not store it."""
BELOW = 0.05
"""Fraction of accuracy that a head may lose against its network; heads trained long enough lose
less."""
FLAT = "flat_confidence"
"""Another flag that is computed when results are read."""
LEAST_SHARPNESS = 0.1
"""Share of the base's variance of confidence below which a trial has this flag."""
MASK_GONE = "mask_gone"
"""A third flag that is computed when results are read."""

_FLAGS = (
    Flag(
        CHANCE,
        "†",
        "accuracy on select and calib together is not significantly better than always "
        "predicting their largest class (one-sided binomial test at 0.1 %); its calibration is "
        "meaningless, and it is never marked as the best",
    ),
    Flag(
        FEW_IMAGES,
        "?",
        f"too few images to tell: select and calib together have fewer than {LEAST_IMAGES}, on "
        "which accuracy is not significantly better than always predicting their largest class "
        "(one-sided binomial test at 0.1 %)",
    ),
    Flag(
        "temperature_bound",
        "‡",
        "the temperature reached an end of its range, or every sample of calib is classified "
        "correctly, so that no temperature is the best; on other images it may do great harm",
    ),
    Flag(
        "temperature_harms",
        "§",
        "in cross-validation on calib, the NLL is larger with the temperature than without "
        "(T = 1), by more than 1 % and by more than noise",
    ),
    Flag(
        "posthoc_harms",
        "¶",
        "in cross-validation on calib, the NLL is larger with the post-hoc transform than "
        "without, by more than 1 % and by more than noise",
    ),
    Flag(
        "posthoc_unchecked",
        "°",
        "it is not known whether the post-hoc transform does harm, since its cross-validation on "
        "calib failed, for example because a part of calib lacks a class",
    ),
    Flag(
        "posthoc_unconverged",
        "#",
        "the fit of the post-hoc transform did not reach its optimum, or there is no optimum, "
        "for example because calib lacks a class",
    ),
    Flag(
        HEAD_BELOW,
        "!",
        "accuracy on test is more than 5 points, and more than twice its standard error, below "
        "that of the network below the head; the head may not have been trained long enough, "
        "and its calibration is that of a different classifier",
    ),
    Flag(
        CONTROL,
        "∅",
        "a trivial control, which shows what a low calibration error does not say; it is never "
        "marked as the best",
    ),
    Flag(
        FLAT,
        "≈",
        "the variance of the confidence on test (sharpness) is below a tenth of the base's, so "
        "that confidence hardly tells which predictions are right",
    ),
    Flag(
        MASK_GONE,
        "×",  # noqa: RUF001
        "q is 1 in the epoch that is evaluated, so that the masks of MaC-Cal keep all weights; the "
        "head is one without masks by then",
    ),
)
FLAGS: dict[str, Flag] = {flag.name: flag for flag in _FLAGS}


def count_flags(cells: Iterable[object]) -> dict[Flag, int]:
    """Count the cells of the column ``flags`` with each flag; a cell may be absent or NaN."""
    counts = Counter[str]()
    for cell in cells:
        if isinstance(cell, str):
            counts.update(cell.split(","))
    return {flag: counts[name] for name, flag in FLAGS.items() if counts[name]}


def is_chance(cells: Iterable[object]) -> bool:
    return FLAGS[CHANCE] in count_flags(cells)


def is_never_best(cells: Iterable[object]) -> bool:
    flags = count_flags(cells)
    return any(FLAGS[name] in flags for name in NEVER_BEST)


def append_flag_signs(name: str, cells: Iterable[object]) -> str:
    """Append the signs of its flags to the name of a row, e.g. ``tst †``."""
    signs = "".join(flag.sign for flag in count_flags(cells))
    return f"{name} {signs}" if signs else name


def legend(cells: Iterable[object]) -> list[str]:
    """Return a line per flag for the foot of a table, e.g. ``† chance (3 trials): ...``."""
    lines = []
    for flag, count in count_flags(cells).items():
        lines.append(f"{flag.sign} {flag.name} ({format_count(count, 'trial')}): {flag.meaning}")
    return lines
