"""mixup, MIT and mixup + mac_cal over alpha (figure 6 of MaC-Cal, arXiv 2508.09116).

A larger alpha of the Beta distribution mixes more and makes the network less confident. Read the
table with O-ECE and U-ECE: mixing trades one for the other.
"""

from collections.abc import Iterator

from tune_calib.spec.datasets import Settings
from tune_calib.spec.ladder import LADDERS, Ladder, Rung

# The paper's values are not known; 1 is that of mixup's authors for CIFAR.
_ALPHAS = (0.1, 0.2, 0.4, 0.7, 1.0)
_MASKED: Settings = {"head": {"method": "mac_cal"}}


def _rungs(alpha: float) -> Iterator[Rung]:
    mixup: Settings = {"network": {"method": "mixup", "alpha": alpha}}
    mit: Settings = {"network": {"method": "mit_a", "alpha": alpha}}
    yield Rung(f"mixup, alpha {alpha:g}", "mixed inputs", mixup, kind="variant")
    yield Rung(f"MIT, alpha {alpha:g}", "outputs solved for", mit, kind="variant")
    both, text = {**mixup, **_MASKED}, "its head retrained, unmixed"
    yield Rung(f"mixup + mac_cal, alpha {alpha:g}", text, both, kind="variant")


LADDERS.register(
    Ladder(
        name="mixup",
        title="mixup, MIT, and mixup with MaC-Cal over alpha",
        rungs=(
            Rung("vanilla", "nothing is mixed", kind="base"),
            Rung("mac_cal", "nothing is mixed, the head retrained", _MASKED, kind="variant"),
            *(rung for alpha in _ALPHAS for rung in _rungs(alpha)),
        ),
    ),
)
