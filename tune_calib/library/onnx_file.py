"""A calibrated network as an ONNX file, which is run and checked before it is written."""

import io
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tune_calib.data.augment import normalise
from tune_calib.errors import UserError
from tune_calib.files.paths import atomic_write
from tune_calib.library.calibrated import CalibratedNetwork
from tune_calib.metrics.validation import two_columns

CLOSE = 1e-5  # largest accepted difference of a number from that of the module

_SAMPLES = 32
_HARD = 256  # number of hard logits of each kind


def write_onnx(
    network: CalibratedNetwork, file: Path, real: Tensor | None = None, samples: Any = None
) -> None:
    """Write a calibrated network on the CPU as ONNX, for batches of any size.

    ``real`` are logits (N, C) of real samples before the transform, which are checked too;
    ``samples`` (N, ...) are inputs of a pool of modules of a user.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(f"ONNX needs {error.name}: pip install 'tune-calib[onnx]'") from None
    slot, head = network.spec.head, network.classifier.head
    if slot is not None and head is not None and head.draws():
        raise UserError(f"{slot.method} draws random numbers; export it without ONNX")
    plain = _Plain(network).eval()
    name, inputs = plain.example(samples)
    # First, so that methods and constants, which are built once, contain numbers and not symbols.
    with torch.no_grad():
        _, logits = plain(inputs)
    content = _exported(plain, name, inputs)
    probs, onnx_logits = _run(content, name, inputs)
    # On the same logits: a transform with steps magnifies differences in the last digit of single
    # precision.
    expected = plain.calibrated_of(onnx_logits).softmax(-1)
    relative = (onnx_logits - logits).abs() / logits.abs().clamp_min(1)
    differences = {"": max((probs - expected).abs().max(), relative.max())}
    for kind, hard_logits in _hard_logits(network.info.classes, real):
        probs = _run_transform(content, hard_logits)
        expected = plain.calibrated_of(hard_logits).softmax(-1)
        differences[f" on {kind} logits"] = (probs - expected).abs().max()
    for where, difference in differences.items():
        if not difference <= CLOSE:  # this refuses NaN too
            raise UserError(
                f"the ONNX file of {_describe(network)} was not written, since its numbers{where} "
                f"differ by up to {difference:.2g}; export without ONNX"
            )
    if network.classes:
        model = onnx.load_from_string(content)
        onnx.helper.set_model_props(model, {"class_names": json.dumps(network.classes)})
        content = model.SerializeToString()
    atomic_write(file, content)


def _hard_logits(classes: int, real: Tensor | None) -> list[tuple[str, Tensor]]:
    drawn = torch.randn(_HARD, classes, generator=torch.Generator().manual_seed(0))
    tied = drawn.round()
    kinds = [
        ("saturated", torch.cat([10 * drawn, 100 * drawn, 1000 * drawn])),
        ("tied", torch.cat([tied, 100 * tied, 0 * tied[:1]])),
    ]
    if real is not None:
        real = real.detach().cpu().float()
        kinds += [("real", real), ("saturated real", torch.cat([10 * real, 100 * real]))]
    return kinds


class _Plain(nn.Module):
    def __init__(self, network: CalibratedNetwork) -> None:
        super().__init__()
        self.calibrated = network

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities and the logits before the transform, both (N, C) and float32."""
        logits = _uncalibrated(self.calibrated, inputs)
        return self.calibrated_of(logits).softmax(-1).float(), logits.clone()

    def calibrated_of(self, logits: Tensor) -> Tensor:
        return self.calibrated.classifier.calibrated(logits.unsqueeze(0))[0]

    def example(self, samples: Any) -> tuple[str, Tensor]:
        if samples is not None:  # several, since torch takes a batch of one for a constant
            return "inputs", samples[torch.arange(_SAMPLES) % len(samples)]
        chance, info = torch.Generator().manual_seed(0), self.calibrated.info
        if self.calibrated.network is not None or self.calibrated.members:
            size = info.stored or info.size
            shape = (_SAMPLES, info.channels, size, size)
            return "images", torch.randint(256, shape, dtype=torch.uint8, generator=chance)
        width = self.calibrated.classifier.width
        name = "features" if width else "logits"
        return name, torch.randn(_SAMPLES, width or info.classes, generator=chance)


def _uncalibrated(network: CalibratedNetwork, inputs: Tensor) -> Tensor:
    """Return logits (N, C) before the transform, of inputs that are not checked."""
    if network.members:
        parts = []
        for member in network.members:
            logits = _uncalibrated(member, inputs)
            parts.append(member.classifier.calibrated(logits.unsqueeze(0))[0])
        return network.average(parts)
    features = logits = inputs
    if network.method is not None:
        output = network.method(network.network, normalise(inputs, network.info))
        features, logits = output.features, output.logits
    elif network.network is not None:  # a module of a user
        logits = two_columns(network.network(inputs), None)
    if network.classifier.head is not None:
        logits = network.classifier.head.predict(features)[0]
    return logits


def _exported(plain: _Plain, name: str, inputs: Tensor) -> bytes:
    sink = io.BytesIO()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about constants in the file, which are intended
            program: Any = torch.onnx.export(
                plain,
                (inputs,),
                input_names=[name],
                output_names=["probabilities", "uncalibrated"],
                dynamic_shapes=({0: torch.export.Dim("samples")},),
                dynamo=True,
                verbose=False,
            )
            program.save(sink)
    except Exception as error:
        # torch's message about an operation that ONNX lacks is a page long.
        raise UserError(
            f"{_describe(plain.calibrated)} uses an operation that torch cannot write as ONNX "
            f"({type(error).__name__}); export without ONNX"
        ) from error
    return sink.getvalue()


def _run(content: bytes, name: str, inputs: Tensor) -> list[Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return list(map(torch.from_numpy, session.run(None, {name: inputs.numpy()})))


def _run_transform(content: bytes, logits: Tensor) -> Tensor:
    """Compute probabilities of logits (N, C) with the part of a file that follows its network."""
    import onnx
    from onnx.utils import Extractor

    model = onnx.load_from_string(content)
    # The output is a copy of the input of the transform.
    (copy,) = (node for node in model.graph.node if "uncalibrated" in node.output)
    name = copy.input[0] if copy.op_type == "Identity" else "uncalibrated"
    part = Extractor(model).extract_model([name], ["probabilities"])
    return _run(part.SerializeToString(), name, logits)[0]


def _describe(network: CalibratedNetwork) -> str:
    spec = network.spec
    slots = (spec.head, spec.posthoc)
    return " with ".join(slot.method for slot in slots if slot) or spec.network.backbone
