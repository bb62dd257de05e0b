"""Proof, before a captured step is used by default, that it equals the eager step and is faster."""

import hashlib
import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from tune_calib.engine.execution import Captured, Inputs, Tensors
from tune_calib.errors import UserError
from tune_calib.paths import atomic_write, cache_folder
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec

STEPS = 3

# Largest difference of a tensor after the steps, relative to what they changed of it. A step that
# misses an input, a moment or an update differs by more than half of it.
TOLERANCES = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 0.1}

# Of a tensor that changes much less than the others, such as a bias before a normalisation, the
# change is rounding errors; then this share of the change of a typical tensor counts.
LEAST_CHANGE = 0.01

SLOWER = 1.1  # times the seconds of eager steps; a smaller difference may be chance


@dataclass(frozen=True)
class Subject:
    """What a self-check depends on, besides the versions of the program and of torch.

    Args:
        execution: ``graph`` or ``compiled``.
        method: name of the method.
        plugin: content hash of its plug-in; empty if it is of the program.
        backbone: name of the backbone; empty for heads.
        precision: ``fp32``, ``tf32`` or ``bf16``.
    """

    execution: str
    method: str
    plugin: str
    backbone: str
    precision: str

    @classmethod
    def of_network(cls, execution: str, slot: NetworkSlot) -> "Subject":
        """Return what the steps of a network depend on."""
        return cls(execution, slot.method, slot.plugin or "", slot.backbone, slot.precision)

    @classmethod
    def of_head(cls, execution: str, slot: HeadSlot) -> "Subject":
        """Return what the steps of a batch of heads depend on."""
        return cls(execution, slot.method, slot.plugin or "", backbone="", precision="fp32")

    def read(self) -> "SelfCheck | None":
        """Return the result of an earlier check on this machine; None if there is none."""
        with suppress(OSError, ValueError, TypeError):  # a cache: the check is repeated
            return SelfCheck(**json.loads(self._path().read_bytes()))
        return None

    def write(self, check: "SelfCheck") -> None:
        """Store a result in the user's cache folder, if that can be written."""
        with suppress(OSError, UserError):
            atomic_write(self._path(), json.dumps(asdict(check)).encode())

    def _path(self) -> Any:
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        versions = torch.__version__, metadata.version("tune-calib"), gpu
        key = json.dumps([*asdict(self).values(), *versions])
        return cache_folder() / "steps" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def list_subjects(spec: TrialSpec) -> list[Subject]:
    """List what the captured steps of a trial with ``auto`` may depend on."""
    subjects = []
    slot, head = spec.network, spec.head
    if not slot.is_frozen:
        for execution in ("graph", "compiled"):
            subjects.append(Subject.of_network(execution, slot))
    if head is not None:
        subjects.append(Subject.of_head("graph", head))
    return subjects


@dataclass(frozen=True)
class SelfCheck:
    """Three steps of a training, eagerly and captured from the same state.

    Args:
        refusal: why the captured step is not used; empty if it is.
        difference: largest relative difference of a tensor that the steps change.
        eager_s: seconds of an eager step.
        captured_s: seconds of a captured step.
        eager_bytes: peak memory of eager steps on the GPU; 0 on a CPU.
        captured_bytes: peak memory of the capture and of captured steps.
    """

    refusal: str = ""
    difference: float = math.nan
    eager_s: float = math.nan
    captured_s: float = math.nan
    eager_bytes: int = 0
    captured_bytes: int = 0


class Proven(Captured):
    """Captures a step if a self-check succeeds at its first call, else calls it eagerly.

    Args:
        subject: of the check, whose result later trainings on this machine use.
        arguments: of ``Captured``.
    """

    def __init__(self, subject: Subject, *arguments: Any, **options: Any) -> None:
        self.check: SelfCheck | None = None
        self.subject, self.reads_cache = subject, True
        super().__init__(*arguments, **options)

    @property
    def refusal(self) -> str:  # type: ignore[override]
        """Return why steps are not captured; empty if they are, or before the first one."""
        return self.check.refusal if self.check else ""

    @property
    def is_captured(self) -> bool:  # type: ignore[override]
        """Return whether steps are captured, as far as known."""
        return not self.refusal

    def __call__(self, inputs: Inputs) -> Tensors:
        """Take a step, after the self-check if it is the first one."""
        if self.check is None and self.reads_cache:
            self.check = self.subject.read()
        if self.check is None:
            self.check = self._prove(inputs)
            self.subject.write(self.check)
        if not self.refusal:
            try:
                return super().__call__(inputs)
            except UserError as error:  # e.g. less memory than at the time of the check
                self.check = replace(self.check, refusal=str(error))
        self.forget()
        return self.step(inputs)

    def _prove(self, inputs: Inputs) -> SelfCheck:
        """Take the steps eagerly and captured from the same state, which is restored."""
        start, is_on_gpu = _copy(self.state()), any(tensor.is_cuda for tensor in inputs.values())
        self.step(inputs)  # libraries choose algorithms
        self.restore(start)
        check = SelfCheck()
        try:
            if is_on_gpu:
                torch.cuda.reset_peak_memory_stats()
            seconds, memory = self._take_steps(self.step, inputs)
            eager = _copy(self.state())
            check = replace(check, eager_s=seconds, eager_bytes=memory)
            self.restore(start)
            if is_on_gpu:
                torch.cuda.reset_peak_memory_stats()
            super().__call__(inputs)
            self.restore(start)
            seconds, memory = self._take_steps(super().__call__, inputs)
            check = replace(check, captured_s=seconds, captured_bytes=memory)
            name, difference = find_difference(start, eager, captured=self.state())
            check = replace(check, difference=difference)
        except UserError as error:
            return replace(check, refusal=str(error))
        finally:
            self.restore(start)
            if is_on_gpu:
                torch.cuda.empty_cache()  # of eager steps, which other trials may need
        if not difference <= TOLERANCES[self.subject.precision]:
            refusal = f"after {STEPS} steps {name} differs by {difference:.1g} of its change"
            return replace(check, refusal=refusal)
        if check.captured_s > SLOWER * check.eager_s:
            ratio = check.captured_s / check.eager_s
            return replace(check, refusal=f"it takes {ratio:.2g} times as long as the eager step")
        return check

    def _take_steps(self, step: Callable[[Inputs], Tensors], inputs: Inputs) -> tuple[float, int]:
        """Take steps that draw the same numbers each time; return seconds a step and memory."""
        gpus = {tensor.device for tensor in inputs.values() if tensor.is_cuda}
        with torch.random.fork_rng(devices=gpus):
            for gpu in gpus:
                torch.cuda.synchronize(gpu)
            started = time.perf_counter()
            for _ in range(STEPS):
                step(inputs)
            for gpu in gpus:
                torch.cuda.synchronize(gpu)
            seconds = (time.perf_counter() - started) / STEPS
        return seconds, torch.cuda.max_memory_allocated() if gpus else 0


def find_difference(start: Tensors, eager: Tensors, captured: Tensors) -> tuple[str, float]:
    """Return the tensor whose change in captured steps differs most, and by which share.

    Args:
        start: tensors before the steps; those that the steps create count as 0.
        eager: tensors after eager steps.
        captured: the same after captured steps.
    """
    changes, errors = {}, {}
    for name, expected in eager.items():
        if not expected.is_floating_point():
            if not torch.equal(expected, captured[name]):
                return name, math.inf
            continue
        before = start.get(name, torch.zeros_like(expected))
        changes[name] = _root_mean_square(expected - before)
        errors[name] = _root_mean_square(captured[name] - expected)
    typical = sorted(changes.values())[len(changes) // 2]
    worst, largest = "", 0.0
    for name, error in errors.items():
        change = max(changes[name], LEAST_CHANGE * typical)
        share = error / change if error else 0.0
        # A NaN, which no comparison finds, is a difference too.
        if not share <= largest:
            worst, largest = name, share
    return worst, largest


def _root_mean_square(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt()) if values.numel() else 0.0


def _copy(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
