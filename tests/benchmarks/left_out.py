"""Processor seconds of a step of two post-hoc maps that are left out, from their formulas.

    python -m tests.benchmarks.left_out

h-calibration: the objective of a sum of 16 powers and its gradient, with k-means by sums over
sorted probabilities, which is faster than that of the authors' program. GPcalib: the evidence lower
bound with 10 inducing points and its gradient.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tests.benchmarks.posthoc import drawn

NEIGHBOURS, CLUSTERS, ROUNDS = 200, 15, 25
POINTS = 10


def clusters_of(values: Tensor) -> Tensor:
    """The clusters (N,) of sorted values (N,), by Lloyd's algorithm."""
    sums = torch.cat([values.new_zeros(1), values.cumsum(0)])
    centres = values[torch.linspace(0, len(values) - 1, CLUSTERS).long()]
    for _ in range(ROUNDS):
        inner = torch.searchsorted(values, (centres[1:] + centres[:-1]) / 2)
        edges = torch.cat([inner.new_zeros(1), inner, inner.new_tensor([len(values)])])
        centres = (sums[edges[1:]] - sums[edges[:-1]]) / edges.diff().clamp(min=1)
        centres = centres.sort().values
    return torch.searchsorted((centres[1:] + centres[:-1]) / 2, values)


def h_calibration_loss(probs: Tensor, labels: Tensor) -> Tensor:
    losses = []
    for label in range(probs.shape[1]):
        is_kept = labels != label
        events, outcomes = probs[is_kept].flatten(), one_hot(labels[is_kept], probs.shape[1])
        order = events.argsort()
        gaps = (events - outcomes.flatten())[order]
        sums, places = torch.cat([gaps.new_zeros(1), gaps.cumsum(0)]), torch.arange(len(gaps))
        lasts = (places + NEIGHBOURS // 2 + 1).clamp(max=len(gaps))
        means = (sums[lasts] - sums[(places - NEIGHBOURS // 2).clamp(min=0)]) / (NEIGHBOURS + 1)
        clusters = clusters_of(events.detach()[order])
        totals = means.new_zeros(CLUSTERS).index_add(0, clusters, means.abs())
        counts = torch.bincount(clusters, minlength=CLUSTERS)
        losses.append((totals / (counts + 1e-5)).mean())
    return 1e5 * torch.stack(losses).mean()


def h_calibration(logits: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    powers = torch.rand(16, requires_grad=True)
    weights = torch.ones(16, requires_grad=True)
    log_probs = logits.log_softmax(1)

    def objective() -> Tensor:
        shares = weights.abs() / weights.abs().sum()
        parts = [
            share * (power * log_probs).softmax(1)
            for share, power in zip(shares, powers, strict=True)
        ]
        return h_calibration_loss(sum(parts), labels)

    return objective


def gaussian_process(logits: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    logits, values = logits.double(), logits.double().flatten()
    places = values[:: len(values) // POINTS][:POINTS].clone().requires_grad_()
    mean, log_scale = (torch.zeros(POINTS).double().requires_grad_() for _ in range(2))
    kernel = torch.tensor([0.0, 2.3, -4.6]).double().requires_grad_()  # of logarithms

    def covariance(first: Tensor, second: Tensor) -> Tensor:
        distances = (first[:, None] - second) ** 2
        return kernel[0].exp() * (-distances / 2 * (-2 * kernel[1]).exp()).exp()

    def objective() -> Tensor:
        noise = kernel[2].exp()
        inducing = covariance(places, places) + (noise + 1e-6) * torch.eye(POINTS).double()
        factor = torch.linalg.cholesky(inducing)
        shares = torch.linalg.solve_triangular(factor, covariance(places, values), upper=False)
        scores = (values + mean @ shares).view_as(logits)
        scales = (2 * log_scale).exp()
        variances = kernel[0].exp() + noise + ((scales - 1) @ shares.square())
        variances, probs = variances.view_as(logits), scores.softmax(1)
        likelihood = scores.log_softmax(1).gather(1, labels[:, None]).sum()
        bend = ((probs.square() - probs) * variances).sum() / 2
        divergence = (scales + mean.square() - 1 - 2 * log_scale).sum() / 2
        return divergence - likelihood - bend

    return objective


def main() -> None:
    torch.set_num_threads(1)
    cases = [
        ("h-calibration", h_calibration, 2500, 10, 2000),
        ("h-calibration", h_calibration, 2500, 100, 2000),
        ("GPcalib", gaussian_process, 10_000, 100, 1000),
    ]
    for name, build, samples, classes, steps in cases:
        objective = build(*drawn(samples, classes))
        seconds = []
        for _ in range(3):
            started = time.process_time()
            objective().backward()
            seconds.append(time.process_time() - started)
        step = sorted(seconds)[1]
        print(
            f"{name} {samples} x {classes}: {step:.2f} s, {steps} steps {step * steps / 60:.1f} min"
        )


if __name__ == "__main__":
    main()
