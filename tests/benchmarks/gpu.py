"""A GPU against its floors: python tests/benchmarks/gpu.py [PROCESSES ...] [--of NAME ...]

Copy the folders tune_calib and tests to a machine with a GPU, and run it there from their parent.
Needs torch, torchvision and timm; for fast_* also pydantic and pyyaml. Rates are images per
second by the inner loop of a training (``engine.steps``) in each precision, and its ratios to (a) a
loop as the papers' repositories write it, and (b) the network's own forward, backward and step on
one resident batch. With numbers of processes, as many networks of the first backbone are trained
side by side: as the machine is, and again under MPS if you start it
(``nvidia-cuda-mps-control -d``) and repeat the command. ``--graphs`` adds steps that are captured,
and captured with a compiled backbone, whose compilation takes minutes.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tune_calib.data.augment import normalise
from tune_calib.engine.execution import Captured, Eager
from tune_calib.engine.steps import NO_WATCH, StepRule, batches_of, train_epoch
from tune_calib.models.network import Network

STEPS, CLASSES, SIZE = 100, 100, 32
# The batch of the papers, and that of the recipe fast.
BATCHES = {"fast_cnn": 256, "fast_dct": 256, "resnet18": 128, "resnet50": 128, "densenet121": 128}
# Of CIFAR; what the trainer reads of a data set's record.
INFO = SimpleNamespace(
    mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010), size=SIZE, spare=0
)


def network_of(name: str, is_bf16: bool) -> Network:
    """A timm model with the CIFAR stem, as ``models.backbones`` builds it, or our own."""
    if name.startswith("fast_"):
        from tune_calib.models.base import build_network

        return build_network(name, "reference", 3, SIZE, CLASSES, 0, is_bf16)

    import timm

    model = timm.create_model(name, num_classes=0)
    if name.startswith("resnet"):
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    else:
        model.features.conv0 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.features.norm0, model.features.pool0 = nn.Identity(), nn.Identity()
    return Network(model, model.num_features, CLASSES, is_bf16)


def take_up(precision: str) -> None:
    """Switches of torch, as ``engine.machine`` sets them."""
    kind = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = kind
    torch.backends.cudnn.conv.fp32_precision = kind  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = True


def sgd(network: nn.Module, fused: bool) -> torch.optim.SGD:
    """The optimiser of the papers."""
    return torch.optim.SGD(
        network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=fused or None
    )


def rate(epoch: Callable[[], int], repeats: int = 3) -> float:
    """Images a second of the fastest of some epochs, after one to warm up."""
    epoch()
    best = 0.0
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        images = epoch()
        torch.cuda.synchronize()
        best = max(best, images / (time.perf_counter() - start))
    return best


def ours(name: str, precision: str, device: torch.device, execution: str = "eager") -> float:
    """The inner loop of a training: images resident as uint8, draws at once, fused optimiser."""
    take_up(precision)
    network = network_of(name, precision == "bf16").to(device, memory_format=torch.channels_last)
    network.train()
    batch = BATCHES[name]
    images = torch.randint(0, 256, (STEPS * batch, 3, SIZE, SIZE), dtype=torch.uint8).to(device)
    labels = torch.randint(CLASSES, (STEPS * batch,)).to(device)
    parameters = list(network.parameters())
    optimizer = sgd(network, fused=True)
    rule = StepRule(optimizer, parameters, 2.0, is_summed=False)
    watch, chance = NO_WATCH, torch.Generator().manual_seed(0)
    rate_of_step = torch.tensor(0.01, device=device)

    def take_step(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        for group in optimizer.param_groups:
            group["lr"] = inputs["lr"]
        targets = labels[inputs["positions"]]
        logits = network(normalise(inputs["images"], INFO)).logits  # type: ignore[arg-type]
        loss = F.cross_entropy(logits, targets)
        rule.step(loss, len(targets), (), watch)
        return {"loss": loss.detach(), "correct": (logits.detach().argmax(1) == targets).sum()}

    def changing() -> dict[str, Tensor]:
        tensors = dict(network.state_dict())
        for index, moments in optimizer.state_dict()["state"].items():
            tensors[f"optimizer.{index}"] = moments["momentum_buffer"]
        return tensors

    executor = Eager(take_step)
    if execution != "eager":
        prepare = network.compiled if execution == "compiled" else nullcontext
        executor = Captured(take_step, changing, prepare)

    def step(number: int, positions: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        outputs = executor({"positions": positions, "images": raw, "lr": rate_of_step})
        return outputs["loss"], outputs["correct"]

    def epoch() -> int:
        order = torch.randperm(len(labels), generator=chance).to(device).split(batch)
        taken = batches_of(images, order, 4, True, chance)
        total, _, seen = train_epoch(taken, step, watch)
        float(total)
        return seen

    return rate(epoch)


def resident(name: str, precision: str, device: torch.device) -> float:
    """Forward, backward and step on one batch that stays on the device."""
    take_up(precision)
    network = network_of(name, precision == "bf16").to(device, memory_format=torch.channels_last)
    network.train()
    batch = BATCHES[name]
    images = torch.randn(batch, 3, SIZE, SIZE, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels, optimizer = torch.randint(CLASSES, (batch,), device=device), sgd(network, fused=True)

    def epoch() -> int:
        for _ in range(STEPS):
            loss = F.cross_entropy(network(images).logits, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        return STEPS * batch

    return rate(epoch)


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
                transforms.Normalize(INFO.mean, INFO.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.made(self.pixels[index].permute(2, 0, 1)), index % CLASSES


def theirs(name: str, device: torch.device) -> float:
    """A loop as the papers' repositories write it: four workers, .item() each batch, float32."""
    take_up("fp32")
    network = network_of(name, is_bf16=False).to(device)
    network.train()
    optimizer = sgd(network, fused=False)
    batch = BATCHES[name]
    loader = torch.utils.data.DataLoader(
        AsTheirs(STEPS * batch),
        batch,
        shuffle=True,
        num_workers=4,
        pin_memory=True,
        persistent_workers=True,
    )

    def epoch() -> int:
        seen = 0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images.to(device)).logits, labels.to(device))
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            optimizer.step()
            loss.item()
            seen += len(labels)
        return seen

    return rate(epoch)


def lines(device: torch.device, backbones: list[str], graphs: bool) -> Iterator[str]:
    """A line for each backbone and precision."""
    yield "network      precision  images/s   over (a) theirs   over (b) resident batch"
    for name in backbones:
        slow = theirs(name, device)
        for precision in ("fp32", "tf32", "bf16"):
            fast, floor = ours(name, precision, device), resident(name, precision, device)
            yield f"{name:12s} {precision:9s} {fast:9.0f} {fast / slow:17.1f} {fast / floor:25.2f}"
        if graphs:
            for execution in ("graph", "compiled"):
                fast = ours(name, "bf16", device, execution)
                yield f"{name:12s} bf16 {execution:8s} {fast:6.0f} {fast / slow:17.1f}"


def _alone(name: str, rates: "multiprocessing.queues.Queue[float]") -> None:
    rates.put(ours(name, "bf16", torch.device("cuda")))


def side_by_side(name: str, processes: int) -> float:
    """Images a second of some processes together on one GPU."""
    context = multiprocessing.get_context("spawn")
    rates = context.Queue()
    started = [context.Process(target=_alone, args=(name, rates)) for _ in range(processes)]
    for process in started:
        process.start()
    found = [rates.get() for _ in started]
    for process in started:
        process.join()
    return sum(found)


def main() -> None:
    """Print all of it."""
    options = argparse.ArgumentParser()
    options.add_argument("processes", type=int, nargs="*")
    options.add_argument("--of", nargs="+", choices=BATCHES, default=list(BATCHES))
    options.add_argument("--graphs", action="store_true")
    given = options.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing measured")
        return
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for line in lines(torch.device("cuda"), given.of, given.graphs):
        print(line, flush=True)
    for count in given.processes:
        found = side_by_side(given.of[0], count)
        print(f"{count} x {given.of[0]} bf16 on it: {found:.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
