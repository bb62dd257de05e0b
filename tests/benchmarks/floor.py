"""(b) Seconds per head and epoch against the bare arithmetic, at the measured product rate."""

import torch

from tests.benchmarks.common import CPU, fastest, head_slots, seconds
from tune_calib.engine.bank import FeatureBank, FeatureSplit
from tune_calib.engine.head_batch import HeadBatchTrainer

SAMPLES, WIDTH, HIDDEN, CLASSES, BATCH = 15_000, 512, 128, 10, 128
HEAD_BATCHES = (1, 4, 16, 64)


class MemoryBank(FeatureBank):
    """Random features in the place of a bank's files."""

    def __init__(self, samples: int = SAMPLES, width: int = WIDTH, classes: int = CLASSES) -> None:
        self.manifest = {"accuracy": {"train": 1.0, "select": 0.9}, "train_views": 1}
        chance = torch.Generator().manual_seed(0)
        self.weight = torch.randn(classes, width, generator=chance) / width
        self.split = self._random(samples, chance)
        self.small = self._random(500, chance)

    def _random(self, samples: int, chance: torch.Generator) -> FeatureSplit:
        classes, width = self.weight.shape
        features = torch.rand(samples, width, generator=chance)
        labels = torch.randint(classes, (samples,), generator=chance)
        return FeatureSplit(features, features @ self.weight.T, labels)

    def train(self, view: int = 0) -> FeatureSplit:
        return self.split

    def select(self) -> FeatureSplit:
        return self.small

    def evaluated(self) -> dict[str, FeatureSplit]:
        return {"select": self.small}

    def own_head(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.weight, torch.zeros(len(self.weight))


def bare_arithmetic(heads: int) -> float:
    """Seconds for the six products of a step, times the steps of an epoch, by the best form.

    Two forward and four backward, each counted at the rate that the same product reaches alone.
    """
    x = torch.randn(heads, BATCH, WIDTH)
    u = torch.randn(heads, WIDTH, HIDDEN)
    h = torch.randn(heads, BATCH, HIDDEN)
    v = torch.randn(heads, HIDDEN, CLASSES)
    g = torch.randn(heads, BATCH, CLASSES)
    products = [
        lambda: torch.bmm(x, u),
        lambda: torch.bmm(h, v),
        lambda: torch.bmm(h.transpose(1, 2), g),
        lambda: torch.bmm(g, v.transpose(1, 2)),
        lambda: torch.bmm(x.transpose(1, 2), h),
        lambda: torch.bmm(h, u.transpose(1, 2)),
    ]
    repeats = max(3, 200 // heads)
    step = sum(fastest(lambda p=p: [p() for _ in range(repeats)]) / repeats for p in products)
    return step * SAMPLES / BATCH


def peak_rate() -> float:
    """FLOP/s of a large square product."""
    a = torch.randn(1024, 1024)
    return 2 * 1024**3 / seconds(lambda: a @ a, repeats=5)


def main() -> None:
    """Print a row for each K."""
    bank = MemoryBank()
    rate = peak_rate()
    flop = 6 * 2 * SAMPLES * (WIDTH * HIDDEN + HIDDEN * CLASSES) / 2
    print(f"{WIDTH}-{HIDDEN}-{CLASSES} heads, {SAMPLES} samples, batch {BATCH}, one thread")
    print(f"large square product: {rate / 1e9:.0f} GFLOP/s")
    print("  K   s/head/epoch   products alone   ratio   ratio to peak rate")
    for heads in HEAD_BATCHES:
        slots = head_slots(heads, params={"width": HIDDEN}, epochs=9, batch_size=BATCH)
        trainer = HeadBatchTrainer(slots, bank, 0, CPU)
        # In turns, and the fastest of each: what else runs on the machine comes and goes.
        turns = [(fastest(trainer.__next__, 2), bare_arithmetic(heads)) for _ in range(2)]
        epoch, floor = (min(times) for times in zip(*turns, strict=True))
        print(
            f"{heads:3d}   {epoch / heads:12.4f}   {floor / heads:14.4f}   {epoch / floor:5.2f}"
            f"   {epoch / heads / (flop / rate):5.2f}"
        )
