"""A population that would not fit in memory, in parts that are trained one after the other."""

import math
from collections.abc import Sequence

import torch

from tune_calib.engine.bank import DevelopmentBank
from tune_calib.engine.population import PASS_BATCH, head_context
from tune_calib.methods._base import HeadMethod
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot

POPULATION_BYTES = 2**31
"""What one population may take; a node trains one on each core."""

# Of each weight, at the most: itself, its gradient, two moments and a mask; weight and mask of the
# best epoch; and, while that one predicts, both of the epoch that is set aside.
COPIES = 9

# Of what each layer puts out on a pass: itself, what the next one makes of it, a logarithm.
OUTPUTS = 3


def in_parts(slots: Sequence[HeadSlot], bank: DevelopmentBank) -> list[list[HeadSlot]]:
    """The heads of a population, in parts of about one size; their numbers do not depend on it."""
    most = max(1, POPULATION_BYTES // _bytes_of_a_head(slots[0], bank))
    size = math.ceil(len(slots) / math.ceil(len(slots) / most))
    return [list(slots[first : first + size]) for first in range(0, len(slots), size)]


def _bytes_of_a_head(slot: HeadSlot, bank: DevelopmentBank) -> int:
    context = head_context(slot, bank, torch.device("cpu"))
    method: HeadMethod = METHODS[slot.method].implementation([slot], context)
    tensors = method.parameters.values()
    weights = sum(tensor.numel() for tensor in tensors)
    # The first axis behind the heads: outputs of a layer, 1 of its bias.
    outputs = sum(tensor.shape[1] for tensor in tensors)
    judged = sum(len(split.labels) for split in bank.evaluated().values())
    numbers = COPIES * weights + OUTPUTS * PASS_BATCH * outputs + judged * context.classes
    return 4 * numbers
