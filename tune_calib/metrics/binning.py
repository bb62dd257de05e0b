from typing import NamedTuple
import torch
from torch import Tensor

class BinTable(NamedTuple):
    count: Tensor
    confidence: Tensor
    accuracy: Tensor
    lower: Tensor
    upper: Tensor

def bin_table(probs: Tensor, labels: Tensor, bins: int = 15, convention: str = "right") -> BinTable:
    conf, pred = probs.max(-1)
    ok = (pred == labels).to(probs.dtype)
    edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype)
    idx = (torch.bucketize(conf.contiguous(), edges) - 1).clamp(0, bins - 1)
    shape = (*conf.shape[:-1], bins)
    z = torch.zeros(shape, dtype=probs.dtype)
    count = z.scatter_add(-1, idx, torch.ones_like(conf))
    n = count.clamp(min=1)
    return BinTable(count, z.scatter_add(-1, idx, conf) / n, z.scatter_add(-1, idx, ok) / n, edges[:-1], edges[1:])
