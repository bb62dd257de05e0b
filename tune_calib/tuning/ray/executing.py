"""The executor of a run: Ray's, or that of this process, which imports no Ray."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from tune_calib.paths import environment
from tune_calib.tuning.ray.executor import Executor, Resources
from tune_calib.tuning.resumed import tell_other_machine
from tune_calib.tuning.site import Site


@contextlib.contextmanager
def executing(
    site: Site, needs: Sequence[Resources], everywhere: Mapping[str, str]
) -> Iterator[Executor]:
    """Start what carries trials out while the block runs.

    Args:
        site: of the run; one that goes on elsewhere than it began is said to.
        needs: of the kinds of trials.
        everywhere: variables that all trials are given.

    Raises:
        UserError: there is no cluster at the address, or it has no room for a trial.
    """
    if not site.uses_ray:
        from tune_calib.tuning.ray.in_process import in_process

        with in_process(everywhere) as executor:
            tell_other_machine(site.out, site.address)
            yield executor
        return

    from tune_calib.tuning.ray.launch import RayExecutor, ray_session

    with ray_session(site.address, environment(site.out, site.store), needs, everywhere):
        tell_other_machine(site.out, site.address)
        yield RayExecutor()
