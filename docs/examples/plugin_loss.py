"""PolyLoss (Leng et al., ICLR 2022): cross entropy with another first Taylor coefficient."""

from pydantic import Field
from torch import Tensor

from tune_calib.methods import NetworkMethod, label_log_probs
from tune_calib.spec.methods import METHODS, MethodInfo, Params
from tune_calib.spec.space import SPACES, Space, uniform


class PolyParams(Params):
    """Hyper-parameters."""

    epsilon: float = Field(2.0, gt=-1)
    """Weight of 1 - p; 0 is the cross entropy, and less than 0 trains a less confident network."""


class PolyLoss(NetworkMethod):
    """Mean of ``-log p[y] + epsilon (1 - p[y])``."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        log_probs = label_log_probs(logits, labels)
        terms: Tensor = -log_probs + self.params.epsilon * (1 - log_probs.exp())
        return terms.mean()


METHODS.register(
    MethodInfo(
        name="poly",
        kind="network",
        title="PolyLoss, first coefficient",
        paper="Leng et al., ICLR",
        year=2022,
        url="https://arxiv.org/abs/2204.12511",
        params=PolyParams,
        implementation=PolyLoss,
    )
)
SPACES.register(Space("poly", {"network.epsilon": uniform(-0.9, 6.0)}))

if __name__ == "__main__":
    import tune_calib

    comparison = tune_calib.compare(
        ["ce", "poly", "poly+temperature"],
        epochs=5,
        seeds=2,
        address="none",
        plugin=__file__,
        out="runs/own-loss",
    )
    means = comparison.rows.groupby("rung_label")[["test/accuracy", "test/ece", "test/nll"]].mean()
    print(means.round(4))
