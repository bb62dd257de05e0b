"""Build the job of a request, after reading the files that it names."""

from tune_calib.paths import parse_path
from tune_calib.spec.ladder import Ladder
from tune_calib.spec.request import AblateRequest, CompareRequest, LadderRequest, SearchRequest
from tune_calib.spec.resolve import default_folder
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.ablate import LadderJob
from tune_calib.tuning.extra import ExtraEvaluations
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.search.job import Question, SearchJob
from tune_calib.tuning.search.objective import Objective
from tune_calib.tuning.site import Site


def build_ladder_job(
    request: AblateRequest | CompareRequest,
    ladder: Ladder,
    asked: ResolvedRequest,
    command: str,
    is_dry: bool = False,
) -> LadderJob:
    """Build the job of a ladder or a comparison.

    Args:
        request: what is requested.
        ladder: as ``resolve_ladder`` returns it.
        asked: as ``resolve_ladder`` returns it.
        command: to run the same again.
        is_dry: write nothing.
    """
    site = _site(request, command)
    asked = resolve_files(asked, site.data_root, site.store, is_dry)
    return LadderJob(ladder, asked, site, ExtraEvaluations(request.shift, request.bootstrap))


def build_search_job(
    request: SearchRequest, asked: ResolvedRequest, command: str, is_dry: bool = False
) -> SearchJob:
    """Build the job of a search; arguments and errors as of ``build_ladder_job``."""
    site = _site(request, command)
    question = Question(
        method=request.method,
        asked=resolve_files(asked, site.data_root, site.store, is_dry),
        objective=Objective(request.metric, request.guard),
        sampler=request.sampler,
        sampler_seed=request.sampler_seed,
        scheduler=request.scheduler,
        population=request.population,
    )
    return SearchJob(
        question=question,
        suggestions=request.trials,
        site=site,
        at_once=request.at_once or site.at_once(),
        study_storage=request.study_storage,
    )


def _site(request: AblateRequest | CompareRequest | SearchRequest, command: str) -> Site:
    out = parse_path(default_folder(request))
    return Site(
        out=out,
        store=parse_path(request.store) if request.store else out / "store",
        data_root=request.data_root,
        address=request.address,
        gpus=request.gpus,
        command=command,
        profile=isinstance(request, LadderRequest) and request.profile,
    )
