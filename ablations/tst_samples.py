"""TST's latent size, and V-TST's Monte Carlo samples (Jordahn and Olmos, arXiv 2405.01196).

The authors' program has a size of 10 by default and 256 in its example, and 10 samples. The number
of samples changes only the evaluation: heads of one size are trained once.
"""

from typing import Any

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

_SIZES = (10, 32, 64, 128, 256, 512)
_SAMPLES = (1, 2, 5, 20, 50)


def _rung(label: str, text: str, method: str, latent: int, **own: Any) -> Rung:
    return Rung(label, text, {"head": {"method": method, "latent": latent, **own}}, kind="variant")


def _drawn(label: str, text: str, latent: int, samples: int) -> Rung:
    return _rung(label, text, "vtst", latent, evaluation="mc", mc_samples=samples)


LADDERS.register(
    Ladder(
        name="tst_samples",
        title="TST and V-TST: latent size and Monte Carlo samples",
        head_recipe="tst",
        rungs=(
            Rung("vanilla", "the network's own head", kind="base"),
            *(_rung(f"TST, Z {size}", "width of the latent", "tst", size) for size in _SIZES),
            *(_drawn(f"V-TST, Z {size}", "10 samples", size, 10) for size in _SIZES),
            *(_drawn(f"V-TST, {n} samples", "Z 256", 256, n) for n in _SAMPLES),
            _rung("V-TST, mean", "Z 256, no sampling", "vtst", 256, evaluation="mean"),
        ),
    ),
)
