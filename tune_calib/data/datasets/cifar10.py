"""CIFAR-10 (Krizhevsky, 2009): 50,000 + 10,000 colour images of 32x32 in ten classes.

Positions count the rows as they are stored. Hugging Face and torchvision store them in different
orders, so the published split indices pick the published images from torchvision's folder alone;
from Parquet they pick an equally random split. Keep one artifact store for one copy of the data.
"""

from tune_calib.data import rules
from tune_calib.data.cifar import Cifar, over_fitted
from tune_calib.spec.datasets import DATASETS

FILES = Cifar(
    name="cifar10",
    torchvision="CIFAR10",
    batches="cifar-10-batches-py",
    binary="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test=("test_batch.bin",),
    classes=10,
    label_bytes=1,
).layouts

DATASETS.register(
    FILES.record(
        "CIFAR-10",
        "cifar10",
        padding=4,
        flip=True,
        rules=rules.CIFAR10,
        published=(50_000, 10_000),
        quick=over_fitted(epochs=10),
    )
)
