"""The command that checks a method: check-method."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tune_calib.console import echo


def check_method(
    name: Annotated[str, typer.Argument(help="method, usually one of a --plugin")],
) -> None:
    """Check that a method behaves as every method must, and explain each failure.

    Examples:
        tune-calib check-method mine --plugin mine.py
    """
    from tune_calib.spec.methods import METHODS

    METHODS.require(name)

    import torch

    from tune_calib.conformance.bench import Bench
    from tune_calib.conformance.suite import results
    from tune_calib.engine.store import Store

    kind = METHODS[name].kind
    # As trials run: the digits of a head depend on the number of threads.
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("warn")
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory() as folder:
        for result in results(name, Bench(Store(Path(folder)))):
            echo(str(result))
            counts[result.outcome] += 1
    skipped = f", {counts['skipped']} do not apply" if counts["skipped"] else ""
    echo(
        f"{kind} method {name}: {counts['passed']} checks passed, {counts['failed']} failed"
        f"{skipped}"
    )
    if counts["failed"]:
        raise typer.Exit(1)
