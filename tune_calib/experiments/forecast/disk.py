"""Bytes of networks, their checkpoints and heads, on tensors without numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tune_calib.engine.population import tensors_of
from tune_calib.experiments.forecast.cost import made
from tune_calib.methods._base import HeadContext
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec


def bytes_of_network(spec: TrialSpec, samples: int) -> tuple[int, int]:
    """Bytes of a network's artifact, and of its checkpoint with the optimiser's moments."""
    network, method = made(spec, samples)
    weights = _size_of([*network.state_dict().values(), *method.state_dict().values()])
    moments = {"sgd": 1 if spec.network.momentum else 0}.get(spec.network.optimizer, 2)
    trained = _size_of([*network.parameters(), *method.parameters()])
    best = 0 if spec.network.select == "last" else weights
    return weights, weights + moments * trained + best


def bytes_of_head(spec: TrialSpec, slot: HeadSlot) -> int:
    """Bytes of a kept classifier: the head, and what it knows of the network's own."""
    record = spec.data.import_record
    width = made(spec, 1)[0].width if record is None else record.width
    weight = torch.zeros(spec.data.info.classes, width)
    own = weight, weight[:, 0]
    context = HeadContext(width, len(weight), slot.epochs, *own, 1.0, weight.device)
    method = METHODS[slot.method].implementation([slot], context)
    # What a method draws while it trains is kept too.
    method.begin_epoch(0)
    method.begin_batch(0)
    return _size_of([*own, *tensors_of(method).values()])


def _size_of(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
