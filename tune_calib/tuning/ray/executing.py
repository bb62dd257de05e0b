"""The executor of a run: Ray's, or that of this process, which imports no Ray."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tune_calib.spec.names import IN_PROCESS
from tune_calib.tuning.ray.executor import Executor, Resources


@contextlib.contextmanager
def executing(
    address: str | None,
    environment: Mapping[str, str] = MappingProxyType({}),
    needs: Sequence[Resources] = (),
    everywhere: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Executor]:
    """Start what carries trials out while the block runs.

    Args:
        address: of a Ray cluster; None for a Ray of this machine, ``IN_PROCESS`` for no Ray.
        environment: variables that trials on a cluster are given.
        needs: of the kinds of trials.
        everywhere: variables that all trials are given.

    Raises:
        UserError: there is no cluster at the address, or it has no room for a trial.
    """
    if address == IN_PROCESS:
        from tune_calib.tuning.ray.in_process import in_process

        with in_process(everywhere) as executor:
            yield executor
        return

    from tune_calib.tuning.ray.launch import RayExecutor, ray_session

    with ray_session(address, environment, needs, everywhere):
        yield RayExecutor()
