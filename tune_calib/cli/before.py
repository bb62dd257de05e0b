"""What a command says before it starts: its effective settings, and for how long it will run."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tune_calib.tuning.dry_run.needs import Job

DryRun = Annotated[bool, typer.Option("--dry-run", help="print the plan and start nothing")]


def tell_settings(job: "Job") -> None:
    """Say on stderr what is about to be done."""
    from tune_calib.activity import activity
    from tune_calib.tuning.dry_run.told import before

    activity("reckoning how long it will take")
    sys.stderr.write(f"{before(job)}\n")


def tell_plan(job: "Job") -> None:
    """Print what would be done.

    Raises:
        UserError: it would be refused.
    """
    from tune_calib.tuning.dry_run.needs import refuse
    from tune_calib.tuning.dry_run.told import dry_run

    refuse(job)
    typer.echo(dry_run(job))
