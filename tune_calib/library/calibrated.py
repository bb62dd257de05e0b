"""A calibrated network as a module, written and loaded without a folder of results.

``NAME.safetensors`` holds all tensors, ``NAME.json`` describes them. Neither runs code. To load a
trial that used a plug-in, name the plug-in again.
"""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import load, save
from torch import Tensor, nn

from tune_calib.engine.classifier import Classifier
from tune_calib.engine.head_batch import tensors_of
from tune_calib.engine.network import build
from tune_calib.engine.pools import average
from tune_calib.engine.predict import TrainedNetwork, predict, predict_module
from tune_calib.engine.tensors import unnest
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.documents import hash_bytes, seal, unseal
from tune_calib.files.paths import atomic_write, expand_path
from tune_calib.methods._base import NetworkMethod
from tune_calib.metrics import validation
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import short_repr

FORMAT, VERSION = "tune-calib calibrated network", 1
ENDINGS = (".safetensors", ".json", ".onnx")


class InputRecord(BaseModel):
    """The images that a network takes."""

    model_config = ConfigDict(frozen=True)

    channels: int
    size: int  # height and width that the network sees, in pixels
    stored: int  # height and width of the images, from which the centre is cropped
    mean: tuple[float, ...]  # per channel, subtracted from pixels scaled to [0, 1]
    std: tuple[float, ...]  # per channel, by which they are divided

    @classmethod
    def of(cls, info: DatasetInfo) -> "InputRecord":
        """Return the record of the network of a data set."""
        info = info.of_test()
        shape = {"channels": info.channels, "size": info.size, "stored": info.stored or info.size}
        return cls(mean=info.mean, std=info.std, **shape)


class Exported(BaseModel):
    """The content of ``NAME.json``, which describes the tensors."""

    model_config = ConfigDict(frozen=True, strict=True)

    format: str = FORMAT
    version: int = VERSION
    sha256: str  # of NAME.safetensors
    trial: str  # spec hash
    spec: dict[str, Any]  # with every default written out
    classes: int
    # In the order of their numbers, where the data set knows them.
    class_names: tuple[str, ...] = Field((), exclude_if=lambda names: not names)
    width: int | None  # number of features that the head takes; None if it takes none
    images: InputRecord | None  # None without a network
    samples: int  # of the training split; some methods store numbers for each
    metrics: dict[str, float]  # test/ece and so on, fractions in [0, 1]
    flags: list[str]
    trained_on: dict[str, Any]  # data set and fingerprints of its splits
    plugins: dict[str, str]  # names and content hashes
    circumstances: dict[str, Any]  # device, threads, processor and versions of the trial


def files_of(file: str | Path) -> list[Path]:
    """Return the files of tensors, record and ONNX that a name refers to."""
    path = expand_path(file)
    if path.suffix in ENDINGS:
        path = path.with_suffix("")
    return [path.with_name(path.name + ending) for ending in ENDINGS]


def read_files(tensors_file: Path, record_file: Path) -> tuple[Exported, dict[str, Tensor]]:
    """Read ``NAME.json`` and the tensors that it describes."""
    content, tensors = unseal(record_file.read_bytes(), record_file), tensors_file.read_bytes()
    if content.get("format") != FORMAT:
        raise DamagedFileError(f"{record_file} was not written by tune-calib export")
    if content.get("version") != VERSION:
        raise UserError(
            f"{record_file} has format {short_repr(content.get('version'))} of another "
            "tune-calib; update tune-calib"
        )
    record = Exported.model_validate_json(json.dumps(content))  # in JSON, a tuple is a list
    if hash_bytes(tensors) != record.sha256:
        raise DamagedFileError(
            f"{tensors_file} is damaged, or is not the file that its JSON file describes"
        )
    return record, load(tensors)


class CalibratedNetwork(nn.Module):
    """Network, head and transform of a trial: raw images in, calibrated probabilities out.

    It only predicts: it keeps no gradients and stays in evaluation mode.

    Args:
        spec: spec of the trial.
        classifier: head and transform of the trial.
        trained: network of the trial; None for imported features or logits, and for a pool.
        members: the networks of a pool.
    """

    record: Exported | None = None
    """The content of ``NAME.json``; None before it is written."""
    classes: tuple[str, ...] = ()
    """The names of the classes in the order of the outputs; empty if the data set has none."""

    def __init__(
        self,
        spec: TrialSpec,
        classifier: Classifier,
        trained: TrainedNetwork | None,
        members: "Sequence[CalibratedNetwork]" = (),
    ) -> None:
        super().__init__()
        self.spec, self.classifier = spec, classifier
        self.members: Any = nn.ModuleList(members)
        self.network = getattr(trained, "network", None)
        self.method = getattr(trained, "method", None)
        self.info: DatasetInfo = spec.data.info.of_test()
        self.eval()

    def train(self, mode: bool = True) -> "CalibratedNetwork":
        return super().train(False)

    def forward(self, images: Tensor | NDArray[np.uint8]) -> Tensor:
        """Return calibrated probabilities (N, C), float64, of raw images; see ``logits``."""
        return self.logits(images).softmax(-1)

    @torch.no_grad()
    def logits(self, images: Tensor | NDArray[np.uint8]) -> Tensor:
        """Return the calibrated logits (N, C), float64, with which the trial was evaluated.

        Args:
            images: (N, channels, H, W), uint8, pixels from 0 to 255, of the size that the network
                was trained on; a tensor or a NumPy array. Modules of a user take any samples.

        Raises:
            UserError: the images have another type or shape, or there is no network.
        """
        if self.members:
            logits = self.average([member.logits(images) for member in self.members])
            return self._calibrated(logits[:, :0], logits)
        if self.network is not None and self.method is None:  # a module of a user
            logits = validation.two_columns(predict_module(self.network, images), None)
            return self._calibrated(logits[:, :0], logits)
        network, method = self._network("images")
        sizes = sorted({self.info.size, self.info.stored or self.info.size})
        if isinstance(images, np.ndarray) and images.dtype == np.uint8:
            with validation.as_user_error():
                validation.refuse_masked(images, "images")
            images = torch.from_numpy(np.array(images))  # a copy: torch needs a writable array
        if not isinstance(images, Tensor) or images.dtype != torch.uint8:
            kind = getattr(images, "dtype", type(images).__name__)
            raise UserError(
                f"give raw images as uint8, pixels from 0 to 255, got {kind}; whether floats are "
                "scaled or normalised already cannot be known"
            )
        shape, channels = tuple(images.shape), self.info.channels
        if len(shape) != 4 or shape[1:] not in [(channels, size, size) for size in sizes]:
            shapes = " or ".join(f"(N, {channels}, {size}, {size})" for size in sizes)
            raise UserError(f"this network takes images {shapes}, got {shape}; resize or crop them")
        if not len(images):
            raise UserError("there is no image to predict; give at least one")
        images = images.to(network.head.weight.device)
        return self._calibrated(*predict(method, network, images, self.info))

    def from_features(self, features: Any) -> Tensor:
        """Return calibrated probabilities (N, C), float64, of features (N, D): tensor or array.

        Raises:
            UserError: the features have another width or are not finite, or the classifier needs
                more than features.
        """
        if (width := self.classifier.width) is not None:
            features = _features_of(features, width).float()
            return self._calibrated(features, features[:, :0]).softmax(-1)
        network, method = self._network("features")
        if type(method).forward is not NetworkMethod.forward:
            raise UserError(
                f"the logits of {self.spec.network.method!r} need more than features; give images"
            )
        features = _features_of(features, network.width).to(network.head.weight)
        with torch.no_grad():
            return self._calibrated(features, network.head(features)).softmax(-1)

    def from_logits(self, logits: Any) -> Tensor:
        """Return calibrated probabilities (N, C), float64, of logits (N, C): tensor or array.

        Raises:
            UserError: the logits have another number of classes, are not finite or are several rows
                of probabilities, or the trial retrained the head or reads features after it.
        """
        if self.spec.head is not None:
            raise UserError(
                f"this classifier retrained its head ({self.spec.head.method}) and reads features "
                "of the network, not logits; give images or features"
            )
        if self.spec.reads_features:
            raise UserError("this classifier also reads features; give images or features alone")
        classes = self.info.classes
        with validation.as_user_error():
            rows = validation.logits_to_predict(logits, None, np.arange(classes))
        if rows.shape[1] != classes:
            raise UserError(f"logits must be (N, {classes}), got {tuple(rows.shape)}")
        return self._calibrated(rows[:, :0], rows).softmax(-1)

    def average(self, members: Sequence[Tensor]) -> Tensor:
        """Return the average (N, C) of the logits of members, as the bank of a pool stores it."""
        assert self.spec.network.pool is not None
        return average(members, self.spec.network.pool.average).float()

    def _calibrated(self, features: Tensor, logits: Tensor) -> Tensor:
        calibrated: Tensor = self.classifier(features, logits)[0]
        return calibrated

    def _network(self, inputs: str) -> tuple[Any, NetworkMethod]:
        if self.members:
            raise UserError(f"the members of a pool have no {inputs} in common; give their inputs")
        if self.network is None or self.method is None:
            method = "from_logits" if self.spec.head is None else "from_features"
            raise UserError(
                f"there is no network for {inputs}: the trial used imported features or "
                f"logits; call {method}"
            )
        return self.network, self.method


def write_calibrated(network: CalibratedNetwork, file: str | Path, entries: dict[str, Any]) -> None:
    """Write ``NAME.safetensors`` and ``NAME.json``, with further ``entries`` of ``Exported``."""
    tensors_file, record_file, _ = files_of(file)
    tensors = {}
    for name, tensor in network.state_dict().items():
        # A copy, since safetensors does not write tensors that share memory.
        tensors[name.replace("/", ".")] = tensor.cpu().clone().contiguous()
    content, images = save(tensors), None
    if network.spec.data.imported is None:
        images = InputRecord.of(network.spec.data.info)
    network.record = Exported(
        sha256=hash_bytes(content),
        trial=network.spec.hash,
        spec=network.spec.model_dump(mode="json"),
        classes=network.info.classes,
        class_names=network.classes,
        width=network.classifier.width,
        images=images,
        **entries,
    )
    # The tensors first: a JSON file without them would look complete.
    atomic_write(tensors_file, content)
    atomic_write(record_file, seal(network.record.model_dump(mode="json")))


def load_calibrated(
    file: str | Path, plugin: str | Path | None = None, networks: Sequence[nn.Module] = ()
) -> CalibratedNetwork:
    """Load what ``tune-calib export`` or ``save_calibrated`` wrote, without running code from it.

    Args:
        file: NAME.safetensors, NAME.json or NAME.
        plugin: file or module of the plug-in that the trial used, if any.
        networks: modules with the architectures of those that ``calibrate_pool`` was given.

    Returns:
        A module on the CPU: ``network(images)`` returns calibrated probabilities.

    Raises:
        UserError: a file is missing, has a later version, or needs a plug-in or other networks.
        DamagedFileError: a file is damaged or foreign, or the files are from different exports.
    """
    tensors_file, record_file, _ = files_of(file)
    record, tensors = read_files(tensors_file, record_file)
    if plugin is not None:
        plugins.load(str(plugin))
    contents = {plugin.content for plugin in plugins.in_use()}
    for name, content in record.plugins.items():  # without them, names could mean other records
        if content not in contents:
            raise UserError(
                f"{record_file}: its trial used plug-in {name} ({content}), whose code the file "
                "lacks; get it from the author of the file, read it, and give it: "
                f"plugin={short_repr(name + '.py')}"
            )
    spec = TrialSpec.build(**record.spec)
    # Otherwise the same tensors would be read as another network.
    if spec.hash != record.trial:
        raise DamagedFileError(
            f"{record_file} is damaged: its spec does not match trial {record.trial}"
        )
    info = spec.data.info
    if record.images is not None and record.images != InputRecord.of(info):
        raise UserError(
            f"{record_file}: {info.name} has different sizes or constants in this version of "
            "tune-calib; load the file with the version that wrote it"
        )
    expected = len(spec.members) if spec.data.imported else 0
    if len(networks) != expected:
        raise UserError(
            f"{record_file} needs {expected} networks whose code it lacks, got {len(networks)}; "
            "give modules of the same architectures: networks=[...]"
        )
    try:
        loaded = _build(spec, tensors, record)
        for member, network in zip(loaded.members, networks, strict=False):
            member.network = copy.deepcopy(network).eval()
        _fill(loaded, tensors)
    except (RuntimeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise DamagedFileError(f"{tensors_file} contains other tensors ({reason})") from None
    loaded.record, loaded.classes = record, record.class_names
    return loaded


def _build(spec: TrialSpec, tensors: dict[str, Tensor], record: Exported) -> CalibratedNetwork:
    """Build a network whose classifiers have their tensors, and whose networks are untrained."""
    trained, members = None, []
    for place, member in enumerate(spec.members):
        members.append(_build(member, unnest(f"members.{place}", tensors), record))
    if record.images is not None and not members:
        trained = TrainedNetwork(*build(spec, record.samples), {})
    classifier = Classifier(spec.head, spec.posthoc, unnest("classifier", tensors))
    return CalibratedNetwork(spec, classifier, trained, members)


def _fill(network: CalibratedNetwork, tensors: dict[str, Tensor]) -> None:
    """Load all tensors of a file; an error says which ones are missing or superfluous."""
    state = network.state_dict()
    if len(state) != len(tensors):
        raise KeyError(f"{len(tensors)} instead of {len(state)}")
    network.load_state_dict({name: tensors[name.replace("/", ".")] for name in state})
    if (head := network.classifier.head) is not None:  # else some would keep initial values
        stored = unnest("head", network.classifier.tensors)
        names = {name for name in stored if not name.startswith("context.")}
        if names != tensors_of(head).keys():
            raise KeyError("head")
    _ = network.classifier.transform


def _features_of(values: Any, width: int) -> Tensor:
    with validation.as_user_error():
        rows = validation.rows_of(values, "features")
    if rows.shape[1] != width:
        raise UserError(f"features must be (N, {width}), got {tuple(rows.shape)}")
    return rows
