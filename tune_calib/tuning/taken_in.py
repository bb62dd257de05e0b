"""What files say of a job, taken into what is asked: from then on no path decides a number."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tune_calib.asked import Asked
from tune_calib.engine import weights
from tune_calib.engine.network import build
from tune_calib.engine.store import Store
from tune_calib.places import Place


def taken_in(asked: Asked, data_root: Path | None, at: Place) -> Asked:
    """The same with what the files of its data set say, and with the hash of its weights.

    Args:
        asked: what is asked for.
        data_root: where data sets lie.
        at: the store; the file of ``network.weights`` is copied to it.

    Raises:
        UserError: a file is not there, damaged, or of another network.
    """
    store = Store(at)
    asked = asked.described(data_root, store.images)
    network: Mapping[str, Any] = asked.given.get("network", {})
    path = network.get("weights")
    if not isinstance(path, str) or weights.is_hash(path):
        return asked
    file = Path(path).expanduser()
    # Before the file is copied: one that does not fit leaves no trace.
    untrained, _ = build(asked.spec(), samples=2)
    if told := weights.fit(untrained, weights.read(file), str(file))[1]:
        sys.stderr.write(f"{file}: {told}\n")
    network = {**network, "weights": weights.keep(file, store)}
    return replace(asked, given={**asked.given, "network": network})
