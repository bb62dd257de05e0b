"""A data set larger than memory."""

import os
import subprocess
import sys

import pytest

from tests.data.archives import image_folder

LIMITED = """
import resource, sys
from pathlib import Path
import torch
import tests.data.archives  # libraries that are loaded later would count as well
from tests.data.support import scanned_slot
from tune_calib.data import cache
from tune_calib.data.splits import load_development
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.files.store import (Store)
from tune_calib.data.splits import load_test
from tune_calib.data.shift import generated
from tune_calib.spec.trial import TrialSpec

torch.set_num_threads(1)
root, folder = Path(sys.argv[1]), Path(sys.argv[2])
cache.LARGE = int(sys.argv[3])
used = int(next(x for x in open("/proc/self/status") if x.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + int(sys.argv[4]),) * 2)
slot = scanned_slot("imagefolder", root, folder / "cache", resize=192, crop=8)
network = {"backbone": "small_cnn", "epochs": 1, "batch_size": 32}
head = {"method": "retrain", "views": 1}
spec = TrialSpec.build(data=slot.model_dump(), network=network, head=head)
store = Store(folder / "store")
splits = [load(slot, root, folder / "cache") for load in (load_development, load_test)]
run = NetworkTraining(spec, store, splits[0], torch.device("cpu"))
while run.step() is not None:
    pass
run.close()
key = bank_key(spec, spec.head)
ensure_bank(FeatureBank, spec, key, store, lambda: tuple(splits), torch.device("cpu"))
for part in generated("gaussian_noise", lambda: splits[1]).parts():
    for _ in part.chunks(50, torch.device("cpu")):
        pass
print("done", splits[0].train.images.shape.numel())
"""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="the limit counts what it should on Linux alone"
)
@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_set_larger_than_memory_is_trained_and_one_in_memory_is_not(is_lazy, tmp_path):
    # 3,912 pictures of 192x192: 412 MiB, and 400 for everything that is done with them (some 260 in
    # batches of 500, and what the allocator leaves between them, which differs from run to run).
    root = image_folder(tmp_path / "data", each=1300, size=(20, 30))
    limit, large = 400 << 20, 0 if is_lazy else 1 << 40
    arguments = [sys.executable, "-c", LIMITED, root, tmp_path, large, limit]
    # Allocators that reserve for each thread count what nobody uses, another amount every time.
    plain = {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    ended = subprocess.run(
        list(map(str, arguments)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **plain},
    )
    assert ("done" in ended.stdout) is is_lazy, ended.stderr
    if not is_lazy:
        assert "memory" in ended.stderr.lower(), ended.stderr
