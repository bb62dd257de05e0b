"""The heads of two-stage training, trained end to end: what they share, and what is drawn."""

import pytest
import torch

from tune_calib.conformance.bench import toy_batch, toy_method, toy_network
from tune_calib.methods._base import log_mean_exp
from tune_calib.spec.methods import METHODS


def methods(**settings):
    """Both methods on one toy network, V-TST's with a variance of next to nothing."""
    network = toy_network(4).eval()
    joint, gaussian = (toy_method(METHODS[n], network, 4) for n in ("tst_joint", "vtst_joint"))
    gaussian.params = METHODS["vtst_joint"].params(**settings)
    return network, joint, gaussian


def test_joint_variants_start_from_equal_heads():
    network, joint, gaussian = methods(evaluation="mean")
    images = toy_batch(4).images
    logits, expected = (head(network, images).logits for head in (gaussian, joint))
    assert torch.allclose(logits, expected, atol=1e-6)


def test_a_sample_is_judged_alike_in_any_batch_and_under_averaged_draws():
    network, _, gaussian = methods()
    images = toy_batch(4).images
    with torch.no_grad():
        output = gaussian(network, images)
        alone = torch.cat([gaussian(network, image[None]).logits for image in images])
        moments = gaussian.moments(output.features)
        draws = [gaussian.decode(*moments, noise).log_softmax(-1) for noise in gaussian.noise]
    assert torch.allclose(output.logits, alone, atol=1e-5)
    assert torch.equal(output.logits, log_mean_exp(draws))
    assert len(draws) == gaussian.params.mc_samples == 10
    assert torch.allclose(output.logits.exp().sum(1), torch.ones(len(images)))


@pytest.mark.parametrize("weight", [0.0, 1.0, 3.0])
def test_the_loss_is_the_entropy_of_a_draw_and_the_divergence(weight):
    network, _, gaussian = methods(kl_weight=weight)
    batch = toy_batch(4)
    gaussian.begin_epoch(0, torch.Generator().manual_seed(1))
    gaussian.drawn = gaussian.draw(len(batch.labels))
    step = gaussian.step(network, batch)
    entropy = torch.nn.functional.cross_entropy(step.logits, batch.labels)
    mean, log_variance = gaussian.moments(network.features(batch.images))
    normal = torch.distributions.Normal
    divergence = torch.distributions.kl_divergence(
        normal(mean, (0.5 * log_variance).exp()), normal(0.0, 1.0)
    )
    assert step.loss.item() == pytest.approx(
        (entropy + weight * divergence.mean()).item(), rel=1e-5
    )
