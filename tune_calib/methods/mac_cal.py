"""MaC-Cal (arXiv 2508.09116): retrain a masked head with adaptive sparsity on frozen features.

There is no published code. Each possible reading of equations 8 to 13 is an option; the other
choices are explained in docs/pages/methods/index.md#mac-cal. The default was chosen on ``select``
over several over-confident networks (``docs/pages/results.md``): masks zero the stored weights in
place, and the stored weights are evaluated. The rungs of the paper's ablation are settings of this
method: ``gradient``, ``shape``, ``tau0`` (0 keeps q fixed) and ``tau_decay`` (0 keeps tau fixed).
In the formula, U and V are the two layers, a is the activation, M are the masks, and eta is the
learning rate.

Own recipe: SGD at a constant learning rate of .1 on the loss summed over the batch, with gradients
clipped at 2, weight decay 5e-4 and batch size 128. The paper states the learning rate and the code
base (Mukhoti et al.), which sums and clips.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from tune_calib.determinism import child_seed
from tune_calib.methods._base import EpochStatistics, HeadContext, log_mean_exp
from tune_calib.methods.retrain import Retrain
from tune_calib.models.heads import Activation, HeadShape, apply_stack
from tune_calib.spec.methods import METHODS, Params, cited
from tune_calib.spec.slots.head import HeadSlot


class MacCalParams(Params):
    """Hyper-parameters, with the reading of the paper behind each option and its measured effect.

    The numbers of readings are those of ``tests.benchmarks.mac_cal_defaults``: ECE on ``select``,
    averaged over six over-confident networks on CIFAR-10, with each reading at the best of five
    learning rates and five gammas.
    """

    shape: HeadShape = "bottleneck"
    """Layers of the head.

    - `bottleneck`: two layers ("two-layer bottleneck" in the paper), the full method.
    - `linear`: one layer, as in the first rungs of the paper's ablation.
    """
    start: Literal["fresh", "frozen"] = Field("fresh", exclude_if=lambda start: start == "fresh")
    """Initial weights.

    - `fresh`: new random weights, as in the method.
    - `frozen`: the weights of the network's own head, which are not trained: masks act at inference
      only. This is the paper's starting point. It needs `linear`, `functional` and an `evaluation`
      with masks. One epoch is enough.
    """
    width: int | None = Field(None, ge=1)
    """Hidden width of the bottleneck; D/4 by default. The paper does not give it."""
    activation: Activation = "relu"
    """Activation between the layers of the bottleneck. The paper does not name it.

    - `relu`: max(0, x).
    - `gelu`: x Phi(x), where Phi is the normal distribution function.
    - `none`: the identity, so that the head is linear.
    """
    q0: float = Field(0.5, gt=0, le=1)
    """Initial probability that a connection is kept. The paper's value is not known. The result
    depends strongly on it, which motivates the adaptive rule."""
    q_min: float = Field(0.3, gt=0, le=1)
    """Lower bound of q. The paper has none, but without it q may fall to 0: where the accuracy
    itself falls with q, nothing else stops it."""
    gamma: float | Literal["val_ratio"] = "val_ratio"
    """Target ratio of confidence to accuracy, in (0, 1]. The paper's value is not known.

    - `val_ratio`: the ratio of the network's accuracies on `select` and `train`, our extension. Use
      it where the accuracy on new images is far below that on `train`: a constant near 1 leaves the
      head over-confident there. It was chosen on `select` of seven over-confident networks: ECE
      3.43 %, and 4.41 % with 0.95, the earlier default. It presumes the weight decay of the
      recipes: where a strong one calibrates the head already, use 1.
    """
    tau0: float = Field(0.05, ge=0, le=1)
    """Initial largest change of q per epoch; 0 keeps q fixed. The paper's value is not known.
    Where the gap always exceeds tau, the total change of q is the sum of all tau."""
    tau_decay: float = Field(5.0, ge=0)
    """Decay rate k in tau_t = tau0 exp(-k t/T); 0 keeps tau fixed. The paper's value is not
    known."""
    masking: Literal["destructive", "functional"] = "destructive"
    """How a mask is applied.

    - `destructive`: it zeros the stored weights in place. This was chosen on `select`: ECE 2.27 %.
    - `functional`: only in the forward pass, as in equation 9. ECE 2.48 % at best (new masks for
      each batch, evaluated with q times the weights), otherwise 4.10 to 5.78 %. Its gradient is
      masked by construction, so that the paper's first two rungs would coincide unless the mask
      were detached, as with `gradient` = `dense`. This suggests that the authors mask in place.
    """
    gradient: Literal["masked", "dense"] = "masked"
    """Which weights get a gradient.

    - `masked`: the kept connections (equation 11), as in the rung "gradient restriction" and all
      later rungs.
    - `dense`: all weights, as in the rung "masked retraining".
    """
    masked_update: Literal["grad_only", "freeze"] = "grad_only"
    """How the optimiser treats masked weights.

    - `grad_only`: momentum and weight decay still change them, which is equation 11 taken literally
      in SGD.
    - `freeze`: they do not change, and neither do their moments, like frozen tensors in PLP. With
      destructive masking they stay zero, so that the mask acts in each step as in equation 9.
    """
    mask_scale: Literal["none", "inverted"] = "none"
    """Scale of the kept weights in training.

    - `none`: no scaling; the equations contain only M W.
    - `inverted`: division by q, as in dropout. It is allowed with functional masking only, because
      with destructive masking it would compound in each epoch.
    """
    evaluation: Literal["dense", "expected", "last_mask", "mc"] = "dense"
    """Which head is evaluated. The paper says that inference is deterministic and gives no scale.

    - `dense`: the stored weights, which are masked with destructive masking. With functional
      masking they were never all used together: ECE 4.67 % (new masks in each epoch) or 5.54 % (in
      each batch).
    - `expected`: q times the weights of each masked layer. With functional masking, ECE 2.48 % (new
      masks in each batch) or 4.10 % (in each epoch). It is not allowed with destructive masking,
      where it would mask twice, or with `inverted`, where `dense` is the expectation.
    - `last_mask`: the weights under the last mask. With functional masking, ECE 5.78 %.
    - `mc`: the mean of the probabilities under `mc_samples` masks, which is not deterministic in
      the paper's sense. Like `expected`, it is not allowed with destructive masking.
    """
    mc_samples: int = Field(20, ge=1)
    """Number of masks with `evaluation` = `mc`."""
    refresh: Literal["epoch", "batch"] = "epoch"
    """When new masks are drawn.

    - `epoch`: in each epoch, as the paper says twice.
    - `batch`: in each batch. With functional masking it is better: ECE 2.48 instead of 4.10 %
      (evaluated with q times the weights).
    """
    masked_layers: Literal["all", "first", "last"] = "all"
    """Which weight matrices are masked.

    - `all`: every weight matrix; the paper makes no restriction.
    - `first`: only the first.
    - `last`: only the last.
    """
    mask_bias: bool = False
    """Also mask the biases of these layers. The equations mask weights."""
    statistics: Literal["masked_running", "masked_pass", "dense_pass", "eval_head_pass"] = (
        "masked_running"
    )
    """Source of the accuracy and confidence that update q. According to the paper, they are
    recorded "on the training set at each training epoch".

    - `masked_running`: the batches of the epoch as they are trained, at no extra cost. With
      functional masking, this is under the mask; destructive masking zeros the weights only when
      masks are drawn, and the optimiser may change them afterwards (see `masked_update`).
    - `masked_pass`: a pass over `train` at the end of the epoch, with its mask.
    - `dense_pass`: such a pass with the stored weights.
    - `eval_head_pass`: such a pass with the head of `evaluation`.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if isinstance(self.gamma, float) and not 0 < self.gamma <= 1:
            raise ValueError(f"gamma must be in (0, 1] or 'val_ratio', got {self.gamma}")
        if self.q0 < self.q_min:
            raise ValueError(f"q0 must be >= q_min = {self.q_min}, got {self.q0}")
        if self.mask_scale == "inverted" and self.masking == "destructive":
            raise ValueError(
                "mask_scale=inverted with masking=destructive would compound in each epoch"
            )
        if self.evaluation in ("expected", "mc") and self.masking == "destructive":
            raise ValueError(
                f"evaluation={self.evaluation} with masking=destructive would mask twice, because "
                "the stored weights are masked; use evaluation=dense or masking=functional"
            )
        if self.evaluation == "expected" and self.mask_scale == "inverted":
            # The masks are divided by q, so the expected weights are the weights themselves.
            raise ValueError(
                "evaluation=expected with mask_scale=inverted would scale by q twice; use "
                "evaluation=dense, which is the expectation in this case"
            )
        if self.start == "frozen" and (self.shape != "linear" or self.masking != "functional"):
            raise ValueError(
                "start=frozen needs shape=linear and masking=functional, because the network's own "
                "head is not trained"
            )
        if self.start == "frozen" and self.evaluation == "dense":
            raise ValueError(
                "start=frozen with evaluation=dense is just the network's own head; use "
                "evaluation=last_mask, expected or mc"
            )
        return self


class MacCal(Retrain):
    """K masked heads, each with its own masks, q, gamma and tau."""

    def __init__(self, heads: Sequence[HeadSlot], context: HeadContext) -> None:
        super().__init__(heads, context)
        layers = range(len(self.parameters) // 2)
        chosen = {"all": layers, "first": layers[:1], "last": layers[-1:]}
        kinds = ("weight", "bias") if self.params.mask_bias else ("weight",)
        masked = chosen[self.params.masked_layers]
        self.masked_names = [f"{layer}.{kind}" for layer, kind in product(masked, kinds)]
        self.masks: dict[str, Tensor] = {}
        self.q = self.per_head("q0")
        # The q of the current masks. At the end of an epoch q changes, but the weights that are
        # then evaluated were trained with the old q.
        self.mask_q = self.q.clone()
        self.q_min = self.per_head("q_min")
        self.tau0 = self.per_head("tau0")
        self.tau_decay = self.per_head("tau_decay")
        params: list[Any] = [head.params for head in heads]
        named = {"val_ratio": context.val_ratio}
        values = [named.get(settings.gamma, settings.gamma) for settings in params]
        self.gamma = torch.tensor(values, device=context.device)
        is_dense = [settings.gradient == "dense" for settings in params]
        self.is_dense = torch.tensor(is_dense, device=context.device)[:, None, None]
        self.gradients = {settings.gradient for settings in params}

    def begin_epoch(self, epoch: int) -> None:
        if self.params.refresh == "epoch":
            self._refresh(epoch)

    def begin_batch(self, step: int) -> None:
        if self.params.refresh == "batch":
            self._refresh(step)

    def _refresh(self, index: int) -> None:
        self.mask_q.copy_(self.q)
        self._replace_masks(self._draw_masks(self._draw("mask", index, self.q.device)))
        if self.params.masking == "destructive":
            for name, mask in self.masks.items():
                # A zeroed weight stays zero until the optimiser changes it: at once with a dense
                # gradient, but only by momentum with a masked one, until a later mask keeps it.
                self.parameters[name].data.mul_(mask)

    def _replace_masks(self, masks: dict[str, Tensor]) -> None:
        # In place, because a captured step reads the same tensors again.
        for name, mask in masks.items():
            if name in self.masks:
                self.masks[name].copy_(mask)
            else:
                self.masks[name] = mask.to(self.q, copy=True)

    def _draw(self, purpose: str, index: int, device: torch.device) -> dict[str, Tensor]:
        """Draw uniform numbers for masks from (head seed, purpose, index) only."""
        uniform: dict[str, list[Tensor]] = {name: [] for name in self.masked_names}
        for seed in self.seeds:
            chance = torch.Generator(device).manual_seed(child_seed(seed, purpose, index))
            for name in self.masked_names:
                shape = self.parameters[name].shape[1:]
                uniform[name].append(torch.rand(shape, generator=chance, device=device))
        return {name: torch.stack(drawn) for name, drawn in uniform.items()}

    def _draw_masks(self, uniform: dict[str, Tensor]) -> dict[str, Tensor]:
        """Draw M ~ Bernoulli(q) element-wise (eq. 8), given uniform numbers."""
        q = self.mask_q[:, None, None]
        return {name: (numbers < q).float() for name, numbers in uniform.items()}

    def _masked(self, masks: dict[str, Tensor]) -> dict[str, Tensor]:
        weights = dict(self.parameters)
        for name, mask in masks.items():
            weight, scale = self.parameters[name], mask
            if self.params.mask_scale == "inverted":
                scale = mask / self.mask_q[:, None, None]
            restricted = weight * scale
            if "dense" in self.gradients:
                # The value of the masked weight with the gradient of the full weight.
                full = weight + (restricted - weight).detach()
                restricted = torch.where(self.is_dense, full, restricted)
            weights[name] = restricted
        return weights

    def _apply(self, weights: dict[str, Tensor], features: Tensor) -> Tensor:
        return apply_stack(weights, features, [self.params.activation])

    def training_logits(self, features: Tensor) -> Tensor:
        """Return the logits under the current masks (eq. 9)."""
        # With destructive masking, the stored weights were masked when the masks were drawn.
        is_masked = self.params.masking == "functional"
        weights = self._masked(self.masks) if is_masked else self.parameters
        return self._apply(weights, features)

    def gradient_masks(self) -> dict[str, Tensor]:
        """Return the masks of W <- W - lr M grad (eq. 11)."""
        # With functional masks, autograd has already multiplied by the mask.
        if self.gradients == {"dense"} or self.params.masking == "functional":
            return {}
        if self.gradients == {"masked"}:
            return self.masks
        return {name: torch.where(self.is_dense, 1.0, mask) for name, mask in self.masks.items()}

    def update_masks(self) -> dict[str, Tensor]:
        if self.params.start == "frozen":
            return {name: torch.zeros_like(w) for name, w in self.parameters.items()}
        return self.masks if self.params.masked_update == "freeze" else {}

    def end_epoch(self, epoch: int, statistics: EpochStatistics) -> dict[str, Tensor]:
        """Set q <- q + clip(gamma acc - conf, -tau, tau), clipped to [q_min, 1] (eqs. 12, 13)."""
        tau = self.tau0 * torch.exp(-self.tau_decay * epoch / self.context.epochs)
        gap = self.gamma * statistics.accuracy - statistics.confidence
        moved = self.q + gap.clamp(-tau, tau)
        # Two calls, because clamp does not accept a tensor together with a number.
        self.q = moved.clamp(min=self.q_min).clamp(max=1.0)
        return {"q": self.mask_q, "tau": tau}

    def wants_pass(self) -> bool:
        return bool(self.params.statistics != "masked_running")

    def pass_logits(self, features: Tensor) -> Tensor:
        if self.params.statistics == "eval_head_pass":
            return self.predict(features)
        is_masked = self.params.statistics == "masked_pass"
        weights = self._masked(self.masks) if is_masked else self.parameters
        return self._apply(weights, features)

    def predict(self, features: Tensor, first: int = 0) -> Tensor:
        if self.params.evaluation == "expected":
            q = self.mask_q[:, None, None]
            expected = {name: self.parameters[name] * q for name in self.masks}
            return self._apply({**self.parameters, **expected}, features)
        if self.params.evaluation == "last_mask":
            return self._apply(self._masked(self.masks), features)
        if self.params.evaluation == "mc":
            # The masks depend only on the number of the draw, so that all samples of a split are
            # evaluated under the same masks, however it is divided.
            numbers = range(self.params.mc_samples)
            return log_mean_exp(self._predict_drawn(features, number) for number in numbers)
        return self._apply(self.parameters, features)

    def _predict_drawn(self, features: Tensor, number: int) -> Tensor:
        draw = partial(self._draw, "mc", number, torch.device("cpu"))
        weights = self._masked(self._draw_masks(self.keep(number, draw)))
        return self._apply(weights, features).log_softmax(-1)

    def draws(self) -> bool:
        return bool(self.params.evaluation == "mc")

    def state(self) -> dict[str, Tensor]:
        return {
            # Including masks and mask_q, because the weights of the best epoch are evaluated under
            # its own masks, not under those of the last epoch.
            "q": self.q,
            "mask_q": self.mask_q,
            **{f"mask.{name}": mask for name, mask in self.masks.items()},
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.q = state["q"].to(self.q)
        self.mask_q.copy_(state["mask_q"])
        names = [name for name in state if name.startswith("mask.")]
        self._replace_masks({name.removeprefix("mask."): state[name] for name in names})


METHODS.register(
    name="mac_cal",
    title="masked classifier retraining with adaptive sparsity",
    **cited("MaC-Cal, arXiv", "ni2025maccal"),
    formula=r"""
        z = (M_2 \odot V) \, a((M_1 \odot U) h + b_1) + b_2,
        \quad M \sim \mathrm{Bernoulli}(q_t),
        \quad W \leftarrow W - \eta \, M \odot \nabla_W L;
        \quad q_{t + 1} = \operatorname{clip}(q_t + \operatorname{clip}(\gamma \, \mathrm{acc}_t
            - \mathrm{conf}_t, -\tau_t, \tau_t), q_{\min}, 1),
        \quad \tau_t = \tau_0 \, e^{-k t / T}
    """,
    params=MacCalParams,
    implementation=MacCal,
    recipe="focal",
    per_head=frozenset({"q0", "q_min", "gamma", "tau0", "tau_decay", "gradient"}),
)
