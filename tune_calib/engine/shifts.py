"""Features and logits of shifted images: an artifact for each network and shift set, made once.

One Arrow file for each part of a set (a severity), as a bank has one for each split. Every head and
every post-hoc transform of the network is evaluated on them.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from tune_calib.data.shift.parts import ShiftSet
from tune_calib.engine.artifacts import TrainedNetwork
from tune_calib.engine.bank import BankKey, FeatureSplit, bank_key, read_split, write_split
from tune_calib.engine.network import chunks_of_outputs, evaluation_batch
from tune_calib.engine.store import Store, opened, read_or_remove, write_folder
from tune_calib.errors import DamagedFileError
from tune_calib.paths import AnyPath
from tune_calib.spec.methods import Params
from tune_calib.spec.trial import TrialSpec, content_hash


class ShiftKey(Params):
    """Everything that determines shifted features: two equal keys are one artifact.

    Attributes:
        bank: of the features that the heads were trained on.
        name: of the shift set.
        made: what else decides its images.
    """

    bank: BankKey
    name: str
    made: str

    @property
    def identity(self) -> str:
        """Folder name of the artifact."""
        return content_hash(self)


def shifted_bank_key(spec: TrialSpec) -> BankKey:
    """Return the key of the bank whose network a trial sees shifted images by.

    Its views count only where they moved the statistics of the network.
    """
    key = bank_key(spec, spec.head)
    return key if key.bn_mode == "train" else bank_key(spec, None)


class ShiftedFeatures:
    """Features of a shift set on disk; a ``DamagedFileError`` is raised if they are not whole."""

    def __init__(self, folder: AnyPath) -> None:
        self.folder, self.about = opened(folder)
        for name in self.about["parts"]:
            if _file(name) not in self.about["files"]:
                raise DamagedFileError(f"{folder} lacks the part {name!a} that its manifest names")

    def parts(self) -> dict[str, FeatureSplit]:
        """Return its parts by their names, mapped."""
        return {name: read_split(self.folder / _file(name)) for name in self.about["parts"]}


def ensure_shifted(
    spec: TrialSpec,
    key: BankKey,
    shift: ShiftSet,
    store: Store,
    network: Callable[[], TrainedNetwork],
    device: torch.device,
) -> ShiftedFeatures:
    """Return the features of a shift set, made if they are absent or damaged.

    ``network`` gives that of ``network_behind`` when it is needed.
    """
    identity = ShiftKey(bank=key, name=shift.name, made=shift.made)
    folder = store.folder("shifts", identity.identity)
    # Whole ones need no lock, and may lie where no lock file can be made.
    with suppress(DamagedFileError):
        return ShiftedFeatures(folder)
    with store.lock("shift", identity.identity):
        found = read_or_remove(folder, ShiftedFeatures)
        if found is None:
            trained, parts, info = network(), shift.parts(), spec.data.info.of_test()

            def fill(path: Path) -> None:
                for part in parts:
                    images = part.chunks(evaluation_batch(info), device)
                    outputs = chunks_of_outputs(trained.method, trained.network, images, info)
                    write_split(path / _file(part.name), outputs, part.labels)

            names = [part.name for part in parts]
            write_folder(folder, fill, {"key": identity.model_dump(), "parts": names})
            found = ShiftedFeatures(folder)
    return found


def _file(part: str) -> str:
    return f"{part or 'all'}.arrow"
