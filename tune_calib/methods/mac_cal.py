"""MaC-Cal (arXiv 2508.09116): retrain a masked head on frozen features, sparsity adapted.

There is no published code. Each reading of equations 8 to 13 is an option; the other choices are
explained in docs/pages/methods/index.md#mac-cal. The default was chosen on ``select`` over several
over-confident networks (``docs/pages/results.md``): masks zero the stored weights in place, and the
stored weights are evaluated. The rungs of the paper's ablation are settings of this method:
``gradient``, ``shape``, ``tau0`` (0 keeps q fixed) and ``tau_decay`` (0 keeps tau static). In the
formula U and V are the two layers, a the activation, M the masks, eta the learning rate.

Own recipe: SGD at a constant .1, the loss summed over the batch and its gradient clipped at 2,
weight decay 5e-4, batch 128: the text names the rate and the code base (Mukhoti et al.), which
sums and clips.
"""

from collections.abc import Sequence
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from tune_calib.determinism import child_seed
from tune_calib.methods._base import (
    EpochStatistics,
    HeadContext,
    HeadMethod,
    log_mean_exp,
    stacked_on,
)
from tune_calib.models.heads import Activation, HeadShape, apply_stack, init_stack, layer_sizes
from tune_calib.spec.methods import METHODS, MethodInfo, Params
from tune_calib.spec.slots.head import HeadSlot


class MacCalParams(Params):
    """Hyper-parameters; which reading of the paper an option is, and what is known of it.

    The numbers are of the record in ``docs/pages/results.md``: ECE on ``select``, mean over six
    over-confident networks on CIFAR-10, each reading at its best of five learning rates and
    five gammas.
    """

    shape: HeadShape = "bottleneck"
    """Layers of the head.

    - `bottleneck`: two layers, "two-layer bottleneck" in the text; the full method.
    - `linear`: one layer; the first rungs of the paper's ablation.
    """
    start: Literal["fresh", "frozen"] = Field("fresh", exclude_if=lambda start: start == "fresh")
    """Where the weights start.

    - `fresh`: drawn anew; the method.
    - `frozen`: those of the network's own head, which stay as they are: masks act at inference
      alone. What the paper sets out from; `linear` and `functional` only, and an `evaluation` that
      has masks. One epoch is enough.
    """
    width: int | None = Field(None, ge=1)
    """Hidden width of the bottleneck; D/4 if absent. The paper gives none."""
    activation: Activation = "relu"
    """Between the layers of the bottleneck. The paper names none.

    - `relu`: max(0, x).
    - `gelu`: x Phi(x), Phi the normal distribution function.
    - `none`: both layers are linear.
    """
    q0: float = Field(0.5, gt=0, le=1)
    """Probability that a connection is kept, at the start. The paper's value is not known; the
    result depends strongly on it, which is what the adaptive rule is for."""
    q_min: float = Field(0.3, gt=0, le=1)
    """Floor of q. It is not in the text, but without one q may run to 0: where accuracy itself
    falls with q, nothing else stops it."""
    gamma: float | Literal["val_ratio"] = 0.95
    """Target of confidence over accuracy, in (0, 1]. The paper's value is not known. 0.95 was
    chosen on `select`, together with the learning rate of the heads.

    - `val_ratio`: the network's accuracy on `select` over that on `train`; our extension.
    """
    tau0: float = Field(0.05, ge=0, le=1)
    """Largest change of q an epoch, at the start; 0 keeps q fixed. The paper's value is not
    known. Where the gap always exceeds tau, the sum of all tau is what q travels."""
    tau_decay: float = Field(5.0, ge=0)
    """k of tau_t = tau0 exp(-k t/T); 0 keeps tau static. The paper's value is not known."""
    masking: Literal["destructive", "functional"] = "destructive"
    """Where a mask acts.

    - `destructive`: it zeros the stored weights in place. Chosen on `select`: ECE 2.27 %.
    - `functional`: in the forward pass alone, as equation 9 reads. ECE 2.48 % at its best (a mask
      a batch, q times the weights evaluated), 4.10 to 5.78 % else. Its gradient is masked by
      nature, so that the paper's first two rungs would be one unless the mask were detached, as
      `gradient` = `dense` does: a hint that the authors mask in place.
    """
    gradient: Literal["masked", "dense"] = "masked"
    """Which weights get a gradient.

    - `masked`: the kept connections, equation 11; the rung "gradient restriction" and all after.
    - `dense`: all; the rung "masked retraining".
    """
    masked_update: Literal["grad_only", "freeze"] = "grad_only"
    """What masked weights do in a step of the optimiser.

    - `grad_only`: momentum and weight decay still move them: equation 11 to the letter, in SGD.
    - `freeze`: they stand still, moments included, as frozen tensors do in PLP.
    """
    mask_scale: Literal["none", "inverted"] = "none"
    """Scale of kept weights in training.

    - `none`: as they are; the equations have M W and nothing else.
    - `inverted`: divided by q, as dropout does. Functional masking only; with destructive masking
      it would compound each epoch, and is refused.
    """
    evaluation: Literal["dense", "expected", "last_mask", "mc"] = "dense"
    """Which head is evaluated. The text says that inference is deterministic and names no scale.

    - `dense`: the stored weights, which destructive masking has masked. With functional masking
      they were never all in use together: ECE 4.67 % (a mask an epoch) or 5.54 % (a batch).
    - `expected`: q times the weights of each masked layer. With functional masking ECE 2.48 % (a
      mask a batch) or 4.10 % (a mask an epoch); with destructive masking it would mask twice, and
      is refused, as with `inverted`, whose expectation `dense` is.
    - `last_mask`: the weights under the last mask. With functional masking ECE 5.78 %.
    - `mc`: the mean of the probabilities under `mc_samples` masks; not deterministic in the
      paper's sense. Refused with destructive masking, as `expected` is.
    """
    mc_samples: int = Field(20, ge=1)
    """Masks of `evaluation` = `mc`."""
    refresh: Literal["epoch", "batch"] = "epoch"
    """When new masks are drawn.

    - `epoch`: at each epoch, which the text says twice.
    - `batch`: at each batch. With functional masking the better of the two: ECE 2.48 against
      4.10 % (q times the weights evaluated).
    """
    masked_layers: Literal["all", "first", "last"] = "all"
    """Which weight matrices are masked.

    - `all`: every one; the text restricts it to none.
    - `first`: the first alone.
    - `last`: the last alone.
    """
    mask_bias: bool = False
    """Mask the biases of those layers too. The equations mask weights."""
    statistics: Literal["masked_running", "masked_pass", "dense_pass", "eval_head_pass"] = (
        "masked_running"
    )
    """Accuracy and confidence that move q. The text: recorded "on the training set at each
    training epoch".

    - `masked_running`: of the epoch's own batches, under the mask; costs nothing.
    - `masked_pass`: of a pass over `train` with the mask at the end of the epoch.
    - `dense_pass`: of a pass with the stored weights.
    - `eval_head_pass`: of a pass with the head of `evaluation`.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if isinstance(self.gamma, float) and not 0 < self.gamma <= 1:
            raise ValueError(f"gamma must be in (0, 1] or 'val_ratio', got {self.gamma}")
        if self.q0 < self.q_min:
            raise ValueError(f"q0 must be >= q_min = {self.q_min}, got {self.q0}")
        if self.mask_scale == "inverted" and self.masking == "destructive":
            raise ValueError(
                "mask_scale=inverted with masking=destructive would compound each epoch"
            )
        if self.evaluation in ("expected", "mc") and self.masking == "destructive":
            raise ValueError(
                f"evaluation={self.evaluation} with masking=destructive would mask twice: the "
                "stored weights are masked; take evaluation=dense, or masking=functional"
            )
        if self.evaluation == "expected" and self.mask_scale == "inverted":
            # The masks of an epoch are divided by q: their mean is the weights, not q times them.
            raise ValueError(
                "evaluation=expected with mask_scale=inverted would scale by q twice; take "
                "evaluation=dense, which is the expectation then"
            )
        if self.start == "frozen":
            self._refuse_trained()
        return self

    def _refuse_trained(self) -> None:
        wanted = {"shape": "linear", "masking": "functional"}
        for name, value in wanted.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"start=frozen needs {name}={value}: the network's own head stays as it is"
                )
        if self.evaluation == "dense":
            raise ValueError(
                "start=frozen with evaluation=dense is the network's own head; take "
                "evaluation=last_mask, expected or mc"
            )


class MacCal(HeadMethod):
    """K masked heads, each with its own masks, q, gamma and tau."""

    def __init__(self, heads: Sequence[HeadSlot], context: HeadContext) -> None:
        super().__init__(heads, context)
        params = self.params
        sizes = layer_sizes(params.shape, context.width, context.classes, params.width)
        self.parameters = init_stack(sizes, [head.seed for head in heads], context.device)
        if params.start == "frozen":
            self.parameters["0.weight"].data.copy_(context.weight)
            self.parameters["0.bias"].data.copy_(context.bias)
        self.masked_names = self._masked_names(len(sizes) - 1)
        self.masks: dict[str, Tensor] = {}
        self.q = self.per_head("q0")
        # What the masks in force were drawn with: q moves at the end of an epoch, and the weights
        # that are evaluated then were trained under the old one.
        self.mask_q = self.q
        self.looked_at: tuple[Tensor, list[float]] = (self.q, self.q.tolist())
        self.q_min = self.per_head("q_min")
        self.tau0 = self.per_head("tau0")
        self.tau_decay = self.per_head("tau_decay")
        gammas = [head.params.gamma for head in heads]  # type: ignore[attr-defined]
        self.gamma = torch.tensor(
            [context.val_ratio if gamma == "val_ratio" else gamma for gamma in gammas],
            device=context.device,
        )

    def _masked_names(self, layers: int) -> list[str]:
        chosen = {"all": range(layers), "first": [0], "last": [layers - 1]}
        kinds = ("weight", "bias") if self.params.mask_bias else ("weight",)
        return [f"{i}.{kind}" for i in chosen[self.params.masked_layers] for kind in kinds]

    def begin_epoch(self, epoch: int) -> None:
        """Draw the masks of the epoch."""
        if self.params.refresh == "epoch":
            self._refresh("mask", epoch)

    def begin_batch(self, step: int) -> None:
        """Draw the masks of the batch."""
        if self.params.refresh == "batch":
            self._refresh("mask", step)

    def _refresh(self, purpose: str, index: int) -> None:
        self.mask_q = self.q
        self.masks = self._draw(purpose, index)
        if self.params.masking == "destructive":
            for name, mask in self.masks.items():
                # A weight that is zeroed here stays so until steps move it: with a dense gradient
                # at once, with a masked one by momentum alone, until a later mask keeps it.
                self.parameters[name].data.mul_(mask)

    def _draw(self, purpose: str, index: int) -> dict[str, Tensor]:
        """M ~ Bernoulli(q) element-wise (eq. 8), from (head seed, purpose, index) alone."""
        masks: dict[str, list[Tensor]] = {name: [] for name in self.masked_names}
        # Looked at when q has moved and not at every mask, since a look waits for a GPU.
        if self.looked_at[0] is not self.mask_q:
            self.looked_at = (self.mask_q, self.mask_q.tolist())
        for slot, q in zip(self.heads, self.looked_at[1], strict=True):
            generator = torch.Generator().manual_seed(child_seed(slot.seed, purpose, index))
            for name in self.masked_names:
                shape = self.parameters[name].shape[1:]
                masks[name].append((torch.rand(shape, generator=generator) < q).float())
        return {name: stacked_on(drawn, self.q.device) for name, drawn in masks.items()}

    def _masked(self, masks: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return masked parameters; the setting ``gradient`` decides how gradients pass."""
        weights = dict(self.parameters)
        for name, mask in masks.items():
            weight = self.parameters[name]
            scale = (
                mask / self.mask_q[:, None, None] if self.params.mask_scale == "inverted" else mask
            )
            if self.params.gradient == "masked":
                weights[name] = weight * scale
            else:
                # The value of the masked weight, with the gradient of the whole one.
                weights[name] = weight + (weight * scale - weight).detach()
        return weights

    def _apply(self, weights: dict[str, Tensor], features: Tensor) -> Tensor:
        return apply_stack(weights, features, [self.params.activation])

    def training_logits(self, features: Tensor) -> Tensor:
        """Logits under the current masks (eq. 9)."""
        # The stored weights were masked when the masks were drawn.
        if self.params.masking == "destructive":
            return self._apply(self.parameters, features)
        return self._apply(self._masked(self.masks), features)

    def gradient_masks(self) -> dict[str, Tensor]:
        """W <- W - lr M grad (eq. 11)."""
        # With functional masks autograd has multiplied by the mask already.
        is_masked = self.params.gradient == "masked" and self.params.masking == "destructive"
        return self.masks if is_masked else {}

    def update_masks(self) -> dict[str, Tensor]:
        """Masked weights stand still under ``masked_update`` = ``freeze``; all if frozen."""
        if self.params.start == "frozen":
            return {name: torch.zeros_like(w) for name, w in self.parameters.items()}
        return self.masks if self.params.masked_update == "freeze" else {}

    def end_epoch(self, epoch: int, statistics: EpochStatistics) -> dict[str, Tensor]:
        """Q <- q + clip(gamma acc - conf, -tau, tau), kept in [q_min, 1] (eqs. 12, 13)."""
        tau = self.tau0 * torch.exp(-self.tau_decay * epoch / self.context.epochs)
        gap = self.gamma * statistics.accuracy - statistics.confidence
        moved = self.q + gap.clamp(-tau, tau)
        # Twice, because clamp takes no tensor beside a number.
        self.q = moved.clamp(min=self.q_min).clamp(max=1.0)
        return {"q": self.mask_q, "tau": tau}

    def wants_pass(self) -> bool:
        """Return whether ``statistics`` asks for a pass over ``train`` at the end of the epoch."""
        return bool(self.params.statistics != "masked_running")

    def pass_logits(self, features: Tensor) -> Tensor:
        """Logits of that pass."""
        if self.params.statistics == "masked_pass":
            return self._apply(self._masked(self.masks), features)
        if self.params.statistics == "dense_pass":
            return self._apply(self.parameters, features)
        return self.predict(features)

    def predict(self, features: Tensor, first: int = 0) -> Tensor:
        """Return the logits of the head that ``evaluation`` names."""
        if self.params.evaluation == "expected":
            q = self.mask_q[:, None, None]
            expected = {name: self.parameters[name] * q for name in self.masks}
            return self._apply({**self.parameters, **expected}, features)
        if self.params.evaluation == "last_mask":
            return self._apply(self._masked(self.masks), features)
        if self.params.evaluation == "mc":
            return self._monte_carlo(features)
        return self._apply(self.parameters, features)

    def draws(self) -> bool:
        """Return whether probabilities of several draws are averaged."""
        return bool(self.params.evaluation == "mc")

    def _monte_carlo(self, features: Tensor) -> Tensor:
        # The draws are numbered, whatever part of a split is asked for: all of its samples are
        # judged under the same masks.
        return log_mean_exp(
            self._apply(self._masked(self._draw("mc", sample)), features).log_softmax(-1)
            for sample in range(self.params.mc_samples)
        )

    def state(self) -> dict[str, Tensor]:
        """The keep probabilities and the masks in force."""
        return {
            # Masks and mask_q too: the best epoch's weights are evaluated under its own masks, not
            # under those of the last epoch.
            "q": self.q,
            "mask_q": self.mask_q,
            **{f"mask.{name}": mask for name, mask in self.masks.items()},
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` gave."""
        self.q, self.mask_q = state["q"].to(self.q), state["mask_q"].to(self.q)
        self.masks = {
            name.removeprefix("mask."): mask.to(self.q)
            for name, mask in state.items()
            if name.startswith("mask.")
        }


NI = """
@misc{ni2025maccal,
  author = {Ni, Jiani and Zhao, He and Yang, Yibo and Guo, Dandan},
  title = {Deep Neural Network Calibration by Reducing Classifier Shift with Stochastic Masking},
  howpublished = {arXiv:2508.09116},
  year = {2025},
  url = {https://arxiv.org/abs/2508.09116},
}
"""

METHODS.register(
    MethodInfo(
        name="mac_cal",
        kind="head",
        title="masked classifier retraining with adaptive sparsity",
        paper="MaC-Cal, arXiv",
        year=2025,
        url="https://arxiv.org/abs/2508.09116",
        formula=r"""
            z = (M_2 \odot V) \, a((M_1 \odot U) h + b_1) + b_2,
            \quad M \sim \mathrm{Bernoulli}(q_t),
            \quad W \leftarrow W - \eta \, M \odot \nabla_W L;
            \quad q_{t + 1} = \operatorname{clip}(q_t + \operatorname{clip}(\gamma \, \mathrm{acc}_t
                - \mathrm{conf}_t, -\tau_t, \tau_t), q_{\min}, 1),
            \quad \tau_t = \tau_0 \, e^{-k t / T}
        """,
        bibtex=NI,
        params=MacCalParams,
        implementation=MacCal,
        recipe="focal",
        per_head=frozenset({"q0", "q_min", "gamma", "tau0", "tau_decay"}),
    ),
)
