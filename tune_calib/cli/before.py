"""What a command says before it starts: its effective settings, and for how long it will run."""

from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.console import echo
from tune_calib.spec.request import WHERE

if TYPE_CHECKING:
    from tune_calib.experiments.forecast.needs import Job

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="print the plan and start nothing", rich_help_panel=WHERE),
]


def tell_settings(job: "Job") -> None:
    """Say on stderr what is about to be done."""
    from tune_calib.experiments.forecast.told import tell_settings as tell

    tell(job)


def tell_plan(job: "Job") -> None:
    """Print what would be done.

    Raises:
        UserError: it would be refused.
    """
    from tune_calib.experiments.forecast.needs import refuse
    from tune_calib.experiments.forecast.told import dry_run

    refuse(job)
    echo(dry_run(job))
