"""Open the executor of a run: Ray, or this process with the same workers."""

import contextlib
import logging
import os
import random
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from tune_calib.engine.machine import count_cores, on_threads, set_cores
from tune_calib.files.paths import environment
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import Provenance, RunLocation
from tune_calib.tuning.work.executor import Executor, Resources
from tune_calib.tuning.work.local import LocalExecutor
from tune_calib.tuning.work.shared import SharedExecutor

# Changed by Ray, by Ray Tune and for them.
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_QUIETED = ("ray", "ray.tune", "ray._private.authentication")


@contextlib.contextmanager
def open_executor(
    location: RunLocation,
    needs: Sequence[Resources],
    everywhere: Mapping[str, str],
    provenance: Provenance,
    context: Context,
) -> Iterator[Executor]:
    """Provide the executor of a run; ``everywhere`` are environment variables of all trials."""
    if location.is_shared:
        yield SharedExecutor(provenance, context, everywhere)
        return
    if not location.uses_ray:
        # On Ray a worker has as many BLAS threads as cores; here they would occupy all cores, and
        # spin while they wait.
        with restored_process(), threadpool_limits(1, user_api="blas"):
            os.environ.update(everywhere)
            set_cores(count_cores())
            try:
                yield LocalExecutor(provenance, context)
            finally:
                set_cores(1)
        return

    from tune_calib.tuning.ray.executor import RayExecutor
    from tune_calib.tuning.ray.session import ray_session
    from tune_calib.tuning.ray.trainables import clear_events

    variables = environment(location.out, location.store) if location.address else {}
    with ray_session(location.address, needs, {**variables, **everywhere}):
        try:
            yield RayExecutor(provenance, context)
        finally:
            clear_events(provenance.channel)


@contextlib.contextmanager
def restored_process() -> Iterator[None]:
    """Give trials torch's defaults in the block; restore what they, Ray and libraries change."""
    variables, chance = dict(os.environ), (random.getstate(), np.random.get_state())
    handlers = {number: signal.getsignal(number) for number in _HANDLED}
    levels = {name: logging.getLogger(name).level for name in _QUIETED}
    dtype, mode = torch.get_default_dtype(), torch.get_deterministic_debug_mode()
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    precisions = matmul.fp32_precision, cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    benchmark, gpus = cudnn.benchmark, range(0)
    if torch.cuda.is_initialized():
        gpus = range(torch.cuda.device_count())
    torch.set_default_dtype(torch.float32)
    try:
        with (
            torch.random.fork_rng(list(gpus)),
            on_threads(torch.get_num_threads()),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_deterministic_debug_mode(mode)
        matmul.fp32_precision, cudnn.conv.fp32_precision = precisions  # type: ignore[attr-defined]
        cudnn.benchmark = benchmark
        random.setstate(chance[0])
        np.random.set_state(chance[1])
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if threading.current_thread() is threading.main_thread():  # others cannot set handlers
            for number, handler in handlers.items():
                if handler is not None:  # of a library in C
                    signal.signal(number, handler)
