"""Proof, before a captured step is used by default, that it equals the eager step and is faster."""

import json
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, NamedTuple

import torch

from tune_calib.engine.execution import Captured, Eager, Inputs, Prepare, Step, Tensors, first_line
from tune_calib.engine.steps import Stopwatch
from tune_calib.errors import RefusedError, UserError
from tune_calib.files.documents import hash_text
from tune_calib.files.paths import AnyPath, atomic_write, cache_folder
from tune_calib.spec.slots.base import OptimisedSlot
from tune_calib.spec.slots.network import Execution, NetworkSlot
from tune_calib.spec.trial import TrialSpec

STEPS, ROUNDS = 3, 2

# Largest difference of a tensor after the steps, relative to what they changed of it.
TOLERANCES = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 0.1}

# Of a tensor that changes much less than the others, such as a bias before a normalisation, the
# change is rounding errors; then this share of the change of a typical tensor counts.
LEAST_CHANGE = 0.01

SLOWER = 1.1  # times the seconds of eager steps; a smaller difference may be chance


class Subject(NamedTuple):
    """What a self-check depends on, besides the GPU and the versions of program and torch."""

    execution: str  # graph or compiled
    method: str
    plugin: str | None  # content hash
    backbone: str  # empty for heads
    precision: str

    @classmethod
    def of(cls, execution: str, slot: OptimisedSlot) -> "Subject":
        backbone, precision = "", "fp32"
        if isinstance(slot, NetworkSlot):
            backbone, precision = slot.backbone, slot.precision
        return cls(execution, slot.method, slot.plugin, backbone, precision)

    def read(self) -> "SelfCheck | None":
        with suppress(OSError, ValueError, TypeError):
            return SelfCheck(**json.loads(self.path.read_bytes()))
        return None

    def write(self, check: "SelfCheck") -> None:
        """Store a result; if that is impossible, each training checks."""
        with suppress(OSError, UserError):
            atomic_write(self.path, json.dumps(asdict(check)).encode())

    @property
    def path(self) -> AnyPath:
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        key = json.dumps([*self, gpu, torch.__version__, metadata.version("tune-calib")])
        return cache_folder() / "steps" / f"{hash_text(key)}.json"


@dataclass(frozen=True)
class SelfCheck:
    """Three steps of a training, eagerly and captured from the same state."""

    refusal: str = ""  # why the captured step is not used
    difference: float = math.nan  # as in ``find_difference``
    eager_s: float = math.nan  # a step
    captured_s: float = math.nan
    eager_bytes: int = 0  # peak memory of the process on the GPU
    captured_bytes: int = 0


class Proven(Captured):
    """Captures a step if a self-check at its first call allows it, else calls it eagerly."""

    def __init__(self, subject: Subject, *arguments: Any, **options: Any) -> None:
        self.check: SelfCheck | None = None
        self.subject, self.reads_cache = subject, True
        super().__init__(*arguments, **options)

    def __call__(self, inputs: Inputs) -> Tensors:
        if self.check is None:
            self._use((self.reads_cache and self.subject.read()) or self._prove(inputs))
        if self.is_captured:
            try:
                return super().__call__(inputs)
            except (RuntimeError, UserError) as error:
                if self.recording is not None:
                    raise
                self._use(SelfCheck(first_line(error)))
        self.forget()
        return self.step(inputs)

    def _use(self, check: SelfCheck) -> None:
        self.check, self.refusal, self.is_captured = check, check.refusal, not check.refusal

    def _prove(self, inputs: Inputs) -> SelfCheck:
        start, capture = _copy(self.state()), super().__call__
        try:
            eager_s, eager_bytes = self._take_steps(self.step, inputs, start)
            eager = _copy(self.state())
            captured_s, captured_bytes = self._take_steps(capture, inputs, start)
            name, difference = find_difference(start, eager, captured=self.state())
        except (RuntimeError, UserError) as error:
            check = SelfCheck(first_line(error))
            if isinstance(error, RefusedError):  # not due to this training, like little memory
                self.subject.write(check)
            return check
        finally:
            self.restore(start)
        refusal = ""
        if not difference <= TOLERANCES[self.subject.precision]:
            refusal = f"after {STEPS} steps {name} differs by {difference:.1g} of its change"
        elif captured_s > SLOWER * eager_s:
            refusal = f"it takes {captured_s / eager_s:.2g} times as long as the eager step"
        check = SelfCheck(refusal, difference, eager_s, captured_s, eager_bytes, captured_bytes)
        if not math.isnan(difference):  # the training diverges
            self.subject.write(check)
        return check

    def _take_steps(self, step: Step, inputs: Inputs, start: Tensors) -> tuple[float, int]:
        """Take the steps from a state; return seconds a step and peak memory on the GPU."""
        gpus = {tensor.device for tensor in inputs.values() if tensor.is_cuda}
        for gpu in gpus:
            torch.cuda.empty_cache()  # of steps before, which other trials may need
            torch.cuda.reset_peak_memory_stats(gpu)
        seconds = math.inf
        # In the first round, libraries choose algorithms, and a captured step is captured.
        for _ in range(ROUNDS):
            self.restore(start)
            watch = Stopwatch()
            with torch.random.fork_rng(devices=gpus), watch.phase("steps"):
                for number in range(STEPS):
                    step(_vary(inputs, number))
            seconds = min(seconds, watch.seconds["steps"] / STEPS)
        return seconds, sum(map(torch.cuda.max_memory_allocated, gpus))


def _vary(inputs: Inputs, number: int) -> Inputs:
    """Return other inputs for each step, so that a captured step that fixed one is found."""
    varied = {}
    for name, tensor in inputs.items():
        if tensor.dim():
            rows = torch.arange(len(tensor), device=tensor.device) + number
            varied[name] = tensor[rows.clamp(max=len(tensor) - 1)]
        else:
            varied[name] = tensor / 2**number
    return varied


def find_difference(start: Tensors, eager: Tensors, captured: Tensors) -> tuple[str, float]:
    """Return the tensor whose change in captured steps differs most, and by which share."""
    # Tensors that are not in ``start``, since the steps create them, were 0.
    changes, errors = {}, {}
    for name, expected in eager.items():
        if not expected.is_floating_point():
            if not torch.equal(expected, captured[name]):
                return name, math.inf
            continue
        initial, size = start.get(name, torch.zeros_like(expected)), max(1, expected.numel()) ** 0.5
        changes[name] = float((expected - initial).double().norm()) / size
        errors[name] = float((captured[name] - expected).double().norm()) / size
    typical = sorted(changes.values())[len(changes) // 2]
    worst, largest = "", 0.0
    for name, error in errors.items():
        if math.isnan(error):
            return name, error
        change = max(changes[name], LEAST_CHANGE * typical)
        if error > largest * change:
            worst, largest = name, error / change if change else math.inf
    return worst, largest


def _copy(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def list_refusals(specs: Iterable[TrialSpec]) -> list[str]:
    """Describe captured steps of trials that this machine has refused, each once."""
    subjects: dict[Subject, None] = {}
    for spec in specs:
        for slot in filter(None, (spec.network, spec.head)):
            subjects |= dict.fromkeys(Subject.of(name, slot) for name in ("graph", "compiled"))
    refusals = []
    for subject in subjects:
        if (check := subject.read()) and check.refusal:
            refusals.append(f"{subject.execution} of {subject.method}: refused ({check.refusal})")
    return refusals


def build_executor(
    requested: Execution,
    execution: Execution,
    slot: OptimisedSlot,
    step: Step,
    state: Callable[[], Tensors],
    prepare: Prepare | None = None,
) -> Eager:
    if execution == "eager":
        return Eager(step)
    if requested != "auto":
        return Captured(step, state, prepare)
    return Proven(Subject.of(execution, slot), step, state, prepare)
