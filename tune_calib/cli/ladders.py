"""The commands of ladders and comparisons: ablate, compare."""

from tune_calib.cli.before import DryRun, tell_plan, tell_settings
from tune_calib.cli.options import stoppable, tell_crashed, typed
from tune_calib.cli.request import with_request
from tune_calib.cli.results import report
from tune_calib.console import echo
from tune_calib.paths import parse_path
from tune_calib.results.folders import is_finished
from tune_calib.spec.request import AblateRequest, CompareRequest
from tune_calib.spec.resolve import default_folder, resolve_ladder
from tune_calib.tuning.loggers.known import names_for


@with_request(AblateRequest)
def ablate(request: AblateRequest, dry_run: DryRun = False) -> None:
    """Run an ablation ladder and report it; what is done already is not done again.

    Examples:
        tune-calib ablate mac_cal --seeds 5 --controls --out runs/demo
        tune-calib ablate fedlas --dataset cifar10 --data-root data --gpus 1/2
        tune-calib ablate mac_cal --head-seeds 5 --set head.gamma=0.9
    """
    _run(request, dry_run)


@with_request(CompareRequest)
def compare(request: CompareRequest, dry_run: DryRun = False) -> None:
    """Run methods beside each other, network methods as such, the others on a CE network.

    Examples:
        tune-calib compare ce ls+mac_cal+temperature --seeds 3
        tune-calib compare --all posthoc --dataset cifar10 --data-root data
        tune-calib compare ce temperature --imported mine --store store
    """
    _run(request, dry_run)


def _run(request: AblateRequest | CompareRequest, is_dry: bool) -> None:
    """Carry a request out, and report it; of a dry run, say what would be done."""
    if not (is_dry or request.profile or request.shift or request.bootstrap):
        out = parse_path(default_folder(request))
        # Neither torch nor the data are needed to see it.
        if not names_for(out) and is_finished(out, typed()):
            echo(f"nothing is left to do in {out}", err=True)
            report(str(out))
            return
    ladder, asked = resolve_ladder(request)  # names are refused before torch is imported

    from tune_calib.console import shown
    from tune_calib.tuning.ablate import ablate as run
    from tune_calib.tuning.jobs import build_ladder_job

    job = build_ladder_job(request, ladder, asked, typed(), is_dry)
    if is_dry:
        tell_plan(job)
        return
    site = job.site
    crashed = stoppable(site.command, lambda: run(job, tell_settings))
    report(str(site.out))
    if site.profile:
        from tune_calib.tuning.profile import profiles_told  # imports pandas

        echo(shown(profiles_told(site.out)))
    tell_crashed(crashed, site.command, site.out)
