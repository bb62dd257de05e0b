"""Digits of scikit-learn: 1,797 embedded grey images of 8x8, for tests and first steps.

In the permutation drawn by numpy's ``RandomState(1)``, the first 797 images are ``test``, the next
250 ``select``, the next 250 ``calib`` and the last 500 ``train``.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tune_calib.data.base import Source, Split
from tune_calib.spec.datasets import DATASETS, DatasetInfo, Quick

TEST, VALIDATION = 797, 500


def split(samples: int) -> tuple[Tensor, Tensor]:
    positions = torch.arange(samples)
    return positions[VALIDATION:], positions[:VALIDATION]


def load(_: Path | None) -> Source:
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = np.round(digits.images * (255 / 16)).astype(np.uint8)
    order = torch.from_numpy(np.random.RandomState(1).permutation(len(pixels)))
    labels = torch.from_numpy(digits.target.astype(np.int64))
    images = Split(torch.from_numpy(pixels)[:, None], labels, torch.arange(len(pixels)))
    return Source(train=images.take(order[TEST:]), test=images.take(order[:TEST]))


DATASETS.register(
    DatasetInfo(
        name="digits",
        title="Digits (8x8)",
        classes=10,
        channels=1,
        size=8,
        mean=(0.3071,),
        std=(0.3758,),
        padding=1,
        # A mirrored digit is not a digit, or a different one.
        flip=False,
        load=load,
        locate=lambda _: (),  # the images come with scikit-learn
        split=split,
        published=(1000, TEST),
        hint="it comes with scikit-learn",
        # Memorised noisy labels make the vanilla network over-confident.
        quick=Quick(
            title="memorised noisy labels",
            settings={
                "data": {"label_noise": 0.2},
                "network": {
                    "backbone": "small_cnn", "epochs": 60, "batch_size": 32, "augment": "none",
                    "weight_decay": 1e-4,
                },
                # Chosen on select.
                "head": {"augment": "none", "batch_size": 16, "lr": 0.05},
            },
        ),
    )
)  # fmt: skip
