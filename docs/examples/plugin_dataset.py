"""The digits 0 to 4 of scikit-learn: 901 grey images of 8x8."""

from pathlib import Path

import torch
from torch import Tensor

from tune_calib.data.base import Source, Split
from tune_calib.spec.datasets import DATASETS, DatasetInfo, Quick

TEST, VALIDATION = 301, 200


def load(root: Path | None) -> Source:
    """Load the images in a fixed random order, which no seed of a trial changes."""
    from sklearn.datasets import load_digits  # only where the data set is used

    digits = load_digits(n_class=5)
    images = torch.from_numpy(digits.images * (255 / 16)).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    whole = Split(images, labels, torch.arange(len(labels)))
    return Source(train=whole.take(order[TEST:]), test=whole.take(order[:TEST]))


def split(samples: int) -> tuple[Tensor, Tensor]:
    """Return the positions of train and validation in the training part."""
    return torch.arange(VALIDATION, samples), torch.arange(VALIDATION)


DATASETS.register(
    DatasetInfo(
        name="digits5",
        title="Digits 0 to 4 (8x8)",
        classes=5,
        channels=1,
        size=8,
        mean=(0.31,),
        std=(0.38,),
        padding=1,
        flip=False,
        load=load,
        locate=lambda root: (),
        split=split,
        quick=Quick(
            title="all digits in small batches",
            settings={"network": {"batch_size": 32}, "head": {"batch_size": 32}},
        ),
    )
)

if __name__ == "__main__":
    import tune_calib

    ladder = tune_calib.ablate(
        "mac_cal",
        dataset="digits5",
        backbone="small_cnn",
        epochs=10,
        head_epochs=10,
        set={"network.augment": "none", "head.augment": "none"},
        address="none",
        plugin=__file__,
        out="runs/own-data-set",
    )
    columns = ["test/accuracy", "test/ece"]
    print(ladder.rows.set_index("rung_label")[columns].round(4))
