"""CIFAR-100 (Krizhevsky, 2009): 50,000 + 10,000 colour images of 32x32 in a hundred classes.

``data.labels: coarse`` takes the twenty superclasses. Positions count the rows as they are stored:
see ``cifar10``.
"""

from tune_calib.data import rules
from tune_calib.data.cifar import Cifar, over_fitted
from tune_calib.spec.datasets import DATASETS

# The superclass of each class; the files say the same, but torchvision does not read it.
COARSE = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11,
    6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5,
    5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17,
    10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13,
    16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)  # fmt: skip

FILES = Cifar(
    name="cifar100",
    torchvision="CIFAR100",
    batches="cifar-100-python",
    binary="cifar-100-binary",
    train=("train.bin",),
    test=("test.bin",),
    classes=100,
    # The superclass stands before the class.
    label_bytes=2,
).layouts

# Constants as in the code of Mukhoti et al.: CIFAR-10's. (For test images it takes ImageNet's:
# `data.test_norm: legacy_imagenet`.)
DATASETS.register(
    FILES.record(
        "CIFAR-100",
        "cifar10",
        padding=4,
        flip=True,
        rules=rules.CIFAR100,
        coarse=COARSE,
        published=(50_000, 10_000),
        quick=over_fitted(epochs=16),
    )
)
