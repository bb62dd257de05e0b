"""(d) Feature bank: bytes, and build time against one forward pass over the data."""

import tempfile
from pathlib import Path

from tests.benchmarks.common import CORES, CPU, digits, seconds
from tune_calib.data.augment import normalise
from tune_calib.engine.bank import build_bank
from tune_calib.engine.machine import set_cores
from tune_calib.engine.predict import EVALUATION_BATCH, predict


def main() -> None:
    """Print bytes and ratio for one view of the training split."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        setting = digits(Path(folder) / "store", views=1)
        trained, info = setting.trained, setting.info
        network = trained.network.eval()
        development, test = setting.development, setting.test
        splits = [development.train, development.select, development.calib, test]

        @torch.no_grad()
        def forward() -> None:
            for split in splits:
                for images in split.images.split(EVALUATION_BATCH):
                    network(normalise(images, info))

        def build() -> None:
            key = setting.bank.manifest["key"]
            from tune_calib.engine.bank import BankKey

            target = Path(folder) / "bank"
            build_bank(target, BankKey(**key), trained, info, development, test)

        def evaluate() -> None:
            images = development.train.images.repeat(16, 1, 1, 1)
            predict(trained.method, trained.network, images, info)

        once, built = seconds(forward, 5), seconds(build, 5)
        times = []
        for cores in (1, CORES):
            set_cores(cores)
            times.append(seconds(evaluate, 5))
        set_cores(1)
        size = sum(path.stat().st_size for path in (Path(folder) / "bank").iterdir())
    samples = sum(len(split) for split in splits)
    print(
        f"{samples} images of digits, D = {setting.trained.network.width}, one view, device {CPU}"
    )
    print(f"{size} bytes ({size / samples:.0f} a sample)")
    print(
        f"one pass on {CORES} cores: {times[0] / times[1]:.2f} times as fast as on one (aim: 1.8)"
    )
    print(f"forward {once:.3f} s, build {built:.3f} s, ratio {built / once:.2f} (aim: 1.3)")
