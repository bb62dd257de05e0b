from torch import Tensor
def accuracy(probs: Tensor, labels: Tensor) -> Tensor:
    return (probs.argmax(-1) == labels).to(probs.dtype).mean(-1)
def nll_from_logits(logits: Tensor, labels: Tensor) -> Tensor:
    lp = logits.log_softmax(-1)
    return -lp.gather(-1, labels.expand(lp.shape[:-1]).unsqueeze(-1)).squeeze(-1).mean(-1)
