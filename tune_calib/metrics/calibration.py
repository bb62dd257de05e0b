from torch import Tensor
from tune_calib.metrics.binning import bin_table
def ece(probs: Tensor, labels: Tensor) -> Tensor:
    t = bin_table(probs, labels)
    return (t.count / len(labels) * (t.confidence - t.accuracy).abs()).sum(-1)
