from torch import Tensor
from tune_calib.metrics.calibration import ece
from tune_calib.metrics.scoring import accuracy
def evaluate(probs: Tensor, labels: Tensor, nll: Tensor | None = None) -> dict[str, Tensor]:
    return {"ece": ece(probs, labels), "accuracy": accuracy(probs, labels), "nll": nll}
