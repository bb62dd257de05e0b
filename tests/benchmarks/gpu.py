"""Training on a GPU in each way: python tests/benchmarks/gpu.py [--json FILE] [--of NETWORK ...]

Images per second of the six networks of docs/pages/speed.md, and the time of a step of heads:

- a loop as the papers' programs write it, with torch's switches as installed
- this program, by its own trainer: eager, captured and compiled steps in each precision
- the floor: forward, loss, backward and optimiser on one resident batch, captured

The program itself must be importable, without Ray. Everything is measured in one run, which ends
after ``--minutes``; what it did not reach is null in the file and "-" in the table. Each network
has a process of its own, which is killed at the end of its time. First, backbones are compiled side
by side into an empty folder, unless TORCHINDUCTOR_CACHE_DIR names one.

``--json tune_calib/spec/gpu_rates.json`` gives the rates to forecasts and to docs/pages/speed.md.
``--processes 4 8`` adds networks side by side, as the machine is; repeat it with NVIDIA's MPS.
``--device cpu --steps 2`` only shows that everything runs: small batches, no compilation, and steps
repeated from a tape.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tune_calib.conformance import tape
from tune_calib.data.base import Split
from tune_calib.data.imported import LinearHead
from tune_calib.data.splits import Development
from tune_calib.engine.bank import FeatureSplit
from tune_calib.engine.execution import Captured
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.machine import set_switches
from tune_calib.engine.network import NetworkTrainer
from tune_calib.errors import UserError
from tune_calib.library.retrained import MemoryBank
from tune_calib.models.network import build_network
from tune_calib.spec.gpus import GPUS, RATES
from tune_calib.spec.trial import TrialSpec

# Batches of the papers' recipes, and of the recipe fast.
NETWORKS = {
    "resnet18": 128,
    "resnet50": 128,
    "densenet121": 128,
    "resnet110": 128,
    "wrn26_10": 128,
    "fast_dct": 256,
}
PRECISIONS = ("fp32", "tf32", "bf16")
KINDS = ("papers_loop", "floor", "eager", "graph", "compiled")
# Those that ``auto`` takes first, since the time may not suffice for all.
ORDER = [("graph", "bf16"), ("compiled", "bf16"), ("graph", "tf32"), ("compiled", "tf32")]
ORDER += [("graph", "fp32"), ("eager", "bf16"), ("eager", "tf32"), ("eager", "fp32")]
ORDER += [("floor", "bf16"), ("floor", "tf32")]
COMPILED = ("bf16", "tf32")  # compiled in this order

HEADS = (1, 8, 40)
HEAD_SHAPE = 2048, 100  # features of a ResNet-50 and classes of CIFAR-100
HEAD_BATCH = 128

SIZE, CLASSES = 32, 100
MINUTES = 9.0
COMPILING, TRAINING = 0.4, 0.85  # parts of the time after which these phases end


@dataclass(frozen=True)
class Setting:
    """Where and how long everything is measured."""

    device: torch.device
    steps: int  # of an epoch
    seconds: float  # at least so long, epochs of one kind are repeated

    @property
    def is_gpu(self) -> bool:
        """Whether rates mean anything."""
        return self.device.type == "cuda"

    def batch_of(self, name: str) -> int:
        """Images of a batch."""
        return NETWORKS[name] if self.is_gpu else 4

    def synchronize(self) -> None:
        """Wait for all kernels."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def epoch_s(self, epoch: Callable[[], object]) -> float:
        """Seconds of the fastest of some epochs, after one to warm up."""
        epoch()
        times: list[float] = []
        while sum(times) < self.seconds or not times:
            self.synchronize()
            start = time.perf_counter()
            epoch()
            self.synchronize()
            times.append(time.perf_counter() - start)
        return min(times)


Result = tuple[str, str, float]  # kind, precision or number of heads, value


def spec_of(name: str, precision: str, execution: str, batch: int) -> TrialSpec:
    """The spec of a network on CIFAR-100, with SGD and clipping as in the papers."""
    # Labels are random, so that a real rate could diverge.
    slot = {"backbone": name, "batch_size": batch, "epochs": 9999, "lr": 1e-9, "milestones": ()}
    slot |= {"clip_grad_norm": 2.0, "precision": precision, "execution": execution}
    return TrialSpec.build(data={"dataset": "cifar100"}, network=slot)


def trainer_of(
    name: str, precision: str, execution: str, setting: Setting, steps: int
) -> NetworkTrainer:
    """The program's trainer with random images, of which one is in select."""
    batch = setting.batch_of(name)
    spec = spec_of(name, precision, execution if setting.is_gpu else "eager", batch)
    images = torch.randint(256, (batch * steps, 3, SIZE, SIZE), dtype=torch.uint8)
    indices = torch.arange(len(images))
    train = Split(images, indices % CLASSES, indices)
    few = Split(images[:1], train.labels[:1], indices[:1])
    trainer = NetworkTrainer(spec, Development(train, few, few), setting.device)
    if execution != "eager" and not setting.is_gpu:
        for group in trainer.optimizer.param_groups:
            group["fused"] = True  # as on a GPU, where the rate may be a tensor
        tape.capture(trainer)
    return trainer


def program_rate(name: str, precision: str, execution: str, setting: Setting) -> float:
    """Images per second of the program's own epochs."""
    trainer = trainer_of(name, precision, execution, setting, setting.steps)
    return len(trainer.train) / setting.epoch_s(lambda: next(trainer))


def floor_rate(name: str, precision: str, setting: Setting) -> float:
    """Images per second of a captured step on one batch that stays on the device."""
    batch, device = setting.batch_of(name), setting.device
    spec = spec_of(name, precision, "eager", batch)
    set_switches(spec.network, device)
    network = build_network(name, "reference", 3, SIZE, CLASSES, 0, precision == "bf16")
    network.to(device, memory_format=torch.channels_last).train()
    images = torch.randn(batch, 3, SIZE, SIZE, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (batch,), device=device)
    optimizer = sgd(network, fused=True)

    def step(inputs: dict[str, Any]) -> dict[str, Tensor]:
        for group in optimizer.param_groups:
            group["lr"] = inputs["lr"]
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(network(images).logits, labels).backward()
        optimizer.step()
        return {}

    def changing() -> dict[str, Tensor]:
        tensors = dict(network.state_dict())
        for index, moments in optimizer.state_dict()["state"].items():
            tensors[f"optimizer.{index}"] = moments["momentum_buffer"]
        return tensors

    executor = Captured(step, changing, record=None if setting.is_gpu else tape.record)
    inputs = {"lr": torch.tensor(1e-9, device=device)}

    def epoch() -> None:
        for _ in range(setting.steps):
            executor(inputs)

    return batch * setting.steps / setting.epoch_s(epoch)


def sgd(network: nn.Module, fused: bool) -> torch.optim.SGD:
    """The optimiser of the papers."""
    options: Any = {"lr": 1e-9, "momentum": 0.9, "weight_decay": 5e-4, "fused": fused or None}
    return torch.optim.SGD(network.parameters(), **options)


class AsTheirs(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images through torchvision's transforms, one by one."""

    def __init__(self, samples: int) -> None:
        from torchvision import transforms

        self.pixels = torch.randint(0, 256, (samples, SIZE, SIZE, 3), dtype=torch.uint8)
        self.made = transforms.Compose(
            [
                transforms.ToPILImage(),
                transforms.RandomCrop(SIZE, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
            ]
        )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.made(self.pixels[index].permute(2, 0, 1)), index % CLASSES


def papers_rate(name: str, setting: Setting) -> float:
    """Images per second of a loop as the papers' repositories write it.

    It has four workers, reads the loss of each batch, and leaves torch's switches as installed; it
    must therefore run before the program has set them.
    """
    batch, device = setting.batch_of(name), setting.device
    network = build_network(name, "reference", 3, SIZE, CLASSES, 0)
    network.to(device, memory_format=torch.contiguous_format).train()
    optimizer = sgd(network, fused=False)
    workers = 4 if setting.is_gpu else 0
    loader = torch.utils.data.DataLoader(
        AsTheirs(setting.steps * batch),
        batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=setting.is_gpu,
        persistent_workers=workers > 0,
    )

    def epoch() -> None:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images.to(device)).logits, labels.to(device))
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            optimizer.step()
            loss.item()

    return batch * setting.steps / setting.epoch_s(epoch)


def compile_network(name: str, setting: Setting) -> Iterator[Result]:
    """Seconds until the first compiled step, whose code then lies in the cache."""
    for precision in COMPILED:
        start = time.perf_counter()
        next(trainer_of(name, precision, "compiled", setting, steps=1))
        setting.synchronize()
        yield "compile_s", precision, round(time.perf_counter() - start, 1)


def measure_network(name: str, setting: Setting, compiled: Sequence[str]) -> Iterator[Result]:
    """Rates of one network, which are compiled only in the precisions for which code exists."""
    yield "papers_loop", "installed", round(papers_rate(name, setting), 1)
    batch = setting.batch_of(name)
    network = trainer_of(name, "fp32", "eager", setting, steps=1).network
    with FlopCounterMode(display=False) as counter:
        network(torch.rand(batch, 3, 32, 32, device=setting.device)).logits.sum().backward()
    yield "gflop", "", round(counter.get_total_flops() / batch / 1e9, 3)
    for kind, precision in ORDER:
        if kind == "compiled" and precision not in compiled:
            continue
        if precision == "tf32" and not setting.is_gpu:
            continue
        try:
            if kind == "floor":
                rate = floor_rate(name, precision, setting)
            else:
                rate = program_rate(name, precision, kind, setting)
        except (RuntimeError, UserError) as error:  # such as too little memory
            print(f"{name}, {kind}, {precision}: {error}", file=sys.stderr)
        else:
            yield kind, precision, round(rate, 1)


def measure_heads(setting: Setting) -> Iterator[Result]:
    """Seconds of a step of K heads of MaC-Cal on random features."""
    width, classes = HEAD_SHAPE if setting.is_gpu else (32, 10)
    samples = setting.steps * HEAD_BATCH

    def draw(samples: int) -> FeatureSplit:
        logits = torch.rand(samples, classes)
        return FeatureSplit(torch.rand(samples, width), logits, torch.arange(samples) % classes)

    head = LinearHead(torch.rand(classes, width), torch.zeros(classes))
    bank = MemoryBank(draw(samples), draw(8), head)
    for count in HEADS:
        for execution in ("eager", "graph"):
            slots = []
            for seed in range(count):
                slot = {"method": "mac_cal", "batch_size": HEAD_BATCH, "epochs": 9999, "seed": seed}
                slots.append(TrialSpec.build(network={}, head=slot).head)
            mode = execution if setting.is_gpu else "eager"
            trainer = HeadBatchTrainer(slots, bank, 0, setting.device, mode)  # type: ignore[arg-type]
            if execution != mode:
                tape.capture(trainer)
            epoch_s = setting.epoch_s(partial(next, trainer))
            yield execution, str(count), round(epoch_s / setting.steps, 7)


def measure_beside(name: str, setting: Setting) -> Iterator[Result]:
    """Rate of a network among others."""
    yield "graph", "bf16", program_rate(name, "bf16", "graph", setting)


def product_tflops(setting: Setting) -> float:
    """Operations of one large matrix product in bf16."""
    size = 8192 if setting.is_gpu else 256
    factors = torch.ones(2, size, size, dtype=torch.bfloat16, device=setting.device)
    return round(2 * size**3 / setting.epoch_s(lambda: torch.mm(*factors)) / 1e12, 3)


def _send(results: Connection, job: Callable[..., Iterator[Result]], arguments: Any) -> None:
    os.setsid()  # with the workers of loaders and compilers, which end with this process
    for result in job(*arguments):
        results.send(result)
    results.close()


def in_processes(jobs: dict[str, tuple[Any, ...]], end: float) -> Iterator[tuple[str, Result]]:
    """Yield results of functions, each in its process, until the end of their time."""
    context = multiprocessing.get_context("spawn")
    receivers: dict[Any, str] = {}
    started = []
    for name, (job, *arguments) in jobs.items():
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_send, args=(sender, job, arguments))
        process.start()
        sender.close()
        started.append(process)
        receivers[receiver] = name
    while receivers and time.monotonic() < end:
        for receiver in wait(list(receivers), max(0.0, end - time.monotonic())):
            try:
                yield receivers[receiver], receiver.recv()  # type: ignore[union-attr]
            except EOFError:
                del receivers[receiver]
    for process in started:
        if process.is_alive():
            with suppress(ProcessLookupError):  # it has no group of its own yet
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
        process.join()


def empty_rates(name: str, setting: Setting) -> dict[str, Any]:
    """The record of a network of which nothing is measured."""
    rates: dict[str, Any] = {kind: dict.fromkeys(PRECISIONS) for kind in KINDS}
    rates["papers_loop"] = {"installed": None}
    compile_s = dict.fromkeys(PRECISIONS)
    batch = setting.batch_of(name)
    return {"batch_size": batch, "gflop": None, "images_per_second": rates, "compile_s": compile_s}


def measure(setting: Setting, names: Sequence[str], minutes: float) -> Iterator[dict[str, Any]]:
    """Yield the record of everything after each of its parts."""
    start, total = time.monotonic(), 60 * minutes
    networks = {name: empty_rates(name, setting) for name in names}
    heads = {str(count): {"eager": None, "graph": None} for count in HEADS}
    record = describe(setting) | {"product_tflops": product_tflops(setting)}
    record |= {"networks": networks, "head_step_s": heads}
    if setting.is_gpu:
        jobs = {name: (compile_network, name, setting) for name in names}
        for name, (kind, precision, seconds) in in_processes(jobs, start + COMPILING * total):
            networks[name][kind][precision] = seconds
    for number, name in enumerate(names):
        compiled = [p for p, seconds in networks[name]["compile_s"].items() if seconds]
        now = time.monotonic()
        end = now + (start + TRAINING * total - now) / (len(names) - number)
        job = {name: (measure_network, name, setting, compiled)}
        for _, (kind, precision, value) in in_processes(job, end):
            if kind == "gflop":
                networks[name]["gflop"] = value
            else:
                networks[name]["images_per_second"][kind][precision] = value
        yield record
    for _, (execution, count, seconds) in in_processes(
        {"heads": (measure_heads, setting)}, start + total
    ):
        heads[count][execution] = seconds
    yield record


def describe(setting: Setting) -> dict[str, Any]:
    """Card, versions and source, as the forecast of hours reads them."""
    card = torch.cuda.get_device_name(setting.device) if setting.is_gpu else "CPU"
    models = [gpu.name for gpu in GPUS.values() if gpu.is_named(card)]
    return {
        "gpu_model": models[0] if models else None,
        "card": card,
        "source": f"measured by tests/benchmarks/gpu.py on {date.today()}",
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
    }


def format_json(record: dict[str, Any]) -> str:
    """JSON with a line for each network and number of heads."""
    parts = []
    for key, value in record.items():
        text = json.dumps(value)
        if key in ("networks", "head_step_s"):
            lines = [f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in value.items()]
            text = "{\n" + ",\n".join(lines) + "\n }"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def table(record: dict[str, Any]) -> Iterator[str]:
    """Rows with rates, and ratios of what was measured in this run."""
    yield f"{record['card']}, torch {record['versions']['torch']}"
    yield f"a large matrix product in bf16: {record['product_tflops']:.4g} TFLOP/s"
    columns = "images/s", "over papers", "over bare", "of product"
    yield f"{'network, steps, precision':30}{''.join(f'{column:>13}' for column in columns)}"
    for name, network in record["networks"].items():
        rates = network["images_per_second"]
        papers = rates["papers_loop"]["installed"]
        for kind in KINDS:
            for precision, rate in rates[kind].items():
                if rate is None and (kind, precision) not in ORDER:
                    continue
                peak = None
                if network["gflop"]:
                    peak = 1e3 * record["product_tflops"] / network["gflop"]
                cells = [f"{rate:.0f}" if rate else "-"]
                for reference in (papers, rates["floor"].get(precision), peak):
                    cells.append(f"{rate / reference:.3g}" if rate and reference else "-")
                title = f"{name} {kind} {precision}"
                yield f"{title:30}{''.join(f'{cell:>13}' for cell in cells)}"
        for precision in COMPILED:
            if seconds := network["compile_s"][precision]:
                yield f"{name} compiled in {precision} after {seconds:.0f} s"
    for count, steps in record["head_step_s"].items():
        times = [f"{kind} {1000 * s:.2f} ms" for kind, s in steps.items() if s is not None]
        yield f"a step of K = {count:2} heads: {', '.join(times) or '-'}"


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--of", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--processes", type=int, nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--steps", type=int, default=100, help="of an epoch")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    options = parser.parse_args(arguments)
    if options.device.type == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing measured")
        return
    setting = Setting(options.device, options.steps, seconds=0.7 if options.steps > 2 else 0.0)
    if options.json and options.json.resolve() == RATES and describe(setting)["gpu_model"] is None:
        parser.error("forecasts need the rates of a GPU that tune_calib/spec/gpus.py has")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", folder)
        for record in measure(setting, options.of, options.minutes):
            if options.json:
                options.json.write_text(format_json(record), "utf-8")
    print("\n".join(table(record)), flush=True)
    for count in options.processes:
        jobs = {str(n): (measure_beside, options.of[0], setting) for n in range(count)}
        total = sum(rate for _, (_, _, rate) in in_processes(jobs, time.monotonic() + 120))
        print(f"{count} x {options.of[0]} bf16, captured: {total:.0f} images/s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
