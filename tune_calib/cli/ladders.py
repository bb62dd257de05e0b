"""The commands of ladders and comparisons: ablate, compare."""

from tune_calib.cli.common import (
    DryRun,
    exit_if_crashed,
    format_typed,
    print_plan,
    print_settings,
    run_stoppable,
)
from tune_calib.cli.request import with_request
from tune_calib.cli.results import print_report
from tune_calib.console import echo
from tune_calib.paths import parse_path
from tune_calib.results.folders import is_finished
from tune_calib.spec.request import AblateRequest, CompareRequest
from tune_calib.spec.resolve import default_folder, resolve_ladder
from tune_calib.tuning.loggers.base import use_loggers


@with_request(AblateRequest)
def ablate(request: AblateRequest, dry_run: DryRun = False) -> None:
    """Run an ablation ladder and report it, skipping finished trials.

    Examples:
        tune-calib ablate mac_cal --seeds 5 --controls --out runs/demo
        tune-calib ablate fedlas --dataset cifar10 --data-root data --gpus 1/2
        tune-calib ablate mac_cal --head-seeds 5 --set head.gamma=0.9
    """
    _run(request, dry_run)


@with_request(CompareRequest)
def compare(request: CompareRequest, dry_run: DryRun = False) -> None:
    """Compare methods; head and post-hoc methods stand on a network trained with cross entropy.

    Examples:
        tune-calib compare ce ls+mac_cal+temperature --seeds 3
        tune-calib compare --all posthoc --dataset cifar10 --data-root data
        tune-calib compare ce temperature --imported mine --store store
    """
    _run(request, dry_run)


def _run(request: AblateRequest | CompareRequest, is_dry: bool) -> None:
    """Run a request and report it; with ``--dry-run``, print what would be done."""
    if not (is_dry or request.profile or request.shift or request.bootstrap):
        out = parse_path(default_folder(request))
        # Neither torch nor the data are needed to see it.
        if not use_loggers(out) and is_finished(out, format_typed()):
            echo(f"nothing is left to do in {out}", err=True)
            print_report(str(out))
            return
    ladder, resolved = resolve_ladder(request)  # names are refused before torch is imported

    from tune_calib.console import shown
    from tune_calib.tuning.ladder import build_ladder_run
    from tune_calib.tuning.run import execute_run

    run = build_ladder_run(request, ladder, resolved, format_typed(), is_dry)
    if is_dry:
        print_plan(run)
        return
    location = run.location
    crashed = run_stoppable(location.command, lambda: execute_run(run, print_settings))
    print_report(str(location.out))
    if location.profile:
        from tune_calib.tuning.profile import format_profiles

        echo(shown(format_profiles(location.out)))
    exit_if_crashed(crashed, location.command, location.out)
