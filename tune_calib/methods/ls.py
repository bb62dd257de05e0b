"""Label smoothing (Szegedy et al., CVPR 2016; calibration: Müller et al., NeurIPS 2019).

A share ``alpha`` of the target mass is spread evenly over all classes, including the true one.

Own recipe, from the code of Mukhoti et al. (torrvision/focal_calibration): SGD on the loss summed
over the batch, with gradients clipped at 2. It keeps the last epoch.
"""

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.methods import METHODS, MethodInfo, Params


class LabelSmoothingParams(Params):
    alpha: float = Field(0.05, ge=0, lt=1)
    """Smoothing mass, spread over all classes."""


class LabelSmoothing(NetworkMethod):
    """Mean of ``(1 - alpha) * -log p[y] + alpha * mean_k(-log p[k])``."""

    def loss(self, logits: Tensor, labels: Tensor, features: Tensor, indices: Tensor) -> Tensor:
        """Return the mean smoothed cross entropy, in nats."""
        # As in the code of Mukhoti, MbLS and ACLS. MDCA's code spreads the mass over the wrong
        # classes only (ls_wrong_only).
        return F.cross_entropy(logits, labels, label_smoothing=self.params.alpha)


METHODS.register(
    MethodInfo(
        name="ls",
        kind="network",
        title="label smoothing",
        paper="Müller et al., NeurIPS",
        year=2019,
        url="https://arxiv.org/abs/1906.02629",
        formula=r"""
            L = \frac{1}{N} \sum_i \Big[ (1 - \alpha) (-\log p_{i,y_i})
                + \alpha \frac{1}{C} \sum_k -\log p_{i,k} \Big]
        """,
        bibtex=r"""
@inproceedings{szegedy2016rethinking,
  author = {Szegedy, Christian and Vanhoucke, Vincent and Ioffe, Sergey and Shlens, Jonathon and
    Wojna, Zbigniew},
  title = {Rethinking the Inception Architecture for Computer Vision},
  booktitle = {Proceedings of the IEEE Conference on Computer Vision and Pattern Recognition},
  pages = {2818--2826},
  year = {2016},
  url = {https://arxiv.org/abs/1512.00567},
}

@inproceedings{mueller2019when,
  author = {M{\"u}ller, Rafael and Kornblith, Simon and Hinton, Geoffrey E.},
  title = {When Does Label Smoothing Help?},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {32},
  year = {2019},
  url = {https://arxiv.org/abs/1906.02629},
}
""",
        params=LabelSmoothingParams,
        implementation=LabelSmoothing,
        recipe="focal",
        dataset_defaults={"cifar100": {"alpha": 0.1}},
    ),
)
