"""From a request to the job that a driver carries out; the files that it names are read here."""

from tune_calib.spec.ladder import Ladder
from tune_calib.spec.request import AblateRequest, CompareRequest, LadderRequest, SearchRequest
from tune_calib.spec.resolve import default_folder
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.ablate import LadderJob
from tune_calib.tuning.look import CloserLook
from tune_calib.tuning.search.job import Question, SearchJob
from tune_calib.tuning.search.objective import Objective
from tune_calib.tuning.site import Site
from tune_calib.tuning.taken_in import taken_in


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
        ladder: as ``resolve_ladder`` gives it.
        asked: as ``resolve_ladder`` gives it.
        command: does the same again.
        is_dry: nothing is written.

    Raises:
        UserError: a file is not there, damaged, or of another network.
    """
    site = _site(request, command)
    asked = taken_in(asked, site.data_root, site.store, is_dry)
    return LadderJob(ladder, asked, site, CloserLook(request.shift, request.bootstrap))


def build_search_job(
    request: SearchRequest, asked: ResolvedRequest, command: str, is_dry: bool = False
) -> SearchJob:
    """Build the job of a search; arguments and errors as of ``build_ladder_job``."""
    site = _site(request, command)
    question = Question(
        method=request.method,
        asked=taken_in(asked, site.data_root, site.store, is_dry),
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
    return Site.of(
        default_folder(request),
        request.store,
        request.data_root,
        request.address,
        request.gpus,
        command,
        isinstance(request, LadderRequest) and request.profile,
    )
