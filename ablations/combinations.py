"""Each loss of MaC-Cal's table 3 (arXiv 2508.09116) alone, + mac_cal, and + temperature scaling.

The paper has the first two. Temperature scaling, which takes seconds, is the row to beat.
"""

from collections.abc import Iterator

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

# With their printed names; plain cross entropy has no row in the paper.
_LOSSES = {
    "ce": None,
    "acls": "ACLS",
    "ls": "LS",
    "mbls": "MbLS",
    "mixup": "mixup",
    "mit_a": "MIT",
    "fl": "FL",
    "flsd": "FLSD",
    "dfl": "DFL",
    "cpc": "CPC",
    "mmce": "MMCE",
}


def _rungs(loss: str, printed: str | None) -> Iterator[Rung]:
    """Yield a loss as the base, then what is built on its network."""
    network = {"network": {"method": loss}}
    yield Rung(loss, "the network's own head", network, published=printed, kind="base")
    yield Rung(
        f"{loss}+mac_cal",
        "its head retrained under masks",
        {**network, "head": {"method": "mac_cal"}},
        published=printed and f"{printed}+MaC-Cal",
        kind="variant",
    )
    yield Rung(
        f"{loss}+temperature",
        "its logits divided by one number",
        {**network, "posthoc": {"method": "temperature"}},
        kind="variant",
    )


LADDERS.register(
    Ladder(
        name="combinations",
        title="Losses alone, with MaC-Cal, and with temperature scaling",
        published="maccal/table3",
        rungs=tuple(rung for own in _LOSSES.items() for rung in _rungs(*own)),
    ),
)
