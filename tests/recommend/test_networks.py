"""Parts of the networks against dense computations and enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array

from bayesdrop.recommend import IAFVAE, SIVAE, MultDAE, MultVAE, VampVAE
from bayesdrop.recommend.autoencoder import Autoencoder
from bayesdrop.recommend.histories import Bag, Candidates, ItemBag, choice_nll
from bayesdrop.recommend.masks import ConcreteChoices, FixedChoices, GaussianChoices, LearnableChoices, Mask


def histories(users: int = 6, items: int = 9, seed: int = 0) -> csr_array:
    dense = np.random.default_rng(seed).random((users, items)) < 0.4
    dense[:, 0] = True
    return csr_array(dense.astype(np.float32))


def test_a_bag_is_a_linear_layer_of_the_dense_history() -> None:
    matrix = histories()
    layer = ItemBag(9, 4, torch.Generator().manual_seed(0))
    dense = F.normalize(torch.from_numpy(matrix.toarray()), dim=1)
    torch.testing.assert_close(layer(Bag.of(matrix)), dense @ layer.weight + layer.bias)
    torch.testing.assert_close(layer(Bag.of(matrix).repeated(3)), layer(Bag.of(matrix)).repeat(3, 1))


def test_the_likelihood_and_its_gradient_are_those_of_log_softmax() -> None:
    matrix = histories()
    logits = torch.randn(6, 9, dtype=torch.float64, requires_grad=True)
    bag = Bag.of(matrix)
    weight = torch.rand(6, dtype=torch.float64)
    ours = choice_nll(logits, bag)
    theirs = -(torch.from_numpy(matrix.toarray()) * logits.log_softmax(1)).sum(1)
    torch.testing.assert_close(ours, theirs)
    mine = torch.autograd.grad((ours * weight).sum(), logits)[0]
    torch.testing.assert_close(mine, torch.autograd.grad((theirs * weight).sum(), logits)[0])


@pytest.mark.parametrize(
    "noise",
    [FixedChoices(0.3), LearnableChoices(9, 0.3), ConcreteChoices(9, 0.3, 0.01), GaussianChoices(9, 0.3)],
    ids=lambda noise: type(noise).__name__,
)
def test_noise_of_choices_has_mean_one_and_the_variance_of_dropout(noise: FixedChoices) -> None:
    bag = Bag.of(histories(2000))
    factor = noise.sample(bag, torch.Generator().manual_seed(0)).factor.detach()
    error = (3 / 7 / len(factor)) ** 0.5
    assert abs(float(factor.mean()) - 1) < 5 * error + 0.005
    assert float(factor.var()) == pytest.approx(3 / 7, rel=0.06)


def test_learned_rates_have_the_gradient_of_the_expected_loss() -> None:
    """All masks of one user's four choices, each passed through a loss that is not linear in them."""
    bag = Bag.of(csr_array(np.array([[1, 0, 1, 1, 1]], dtype=np.float32)))
    noise = LearnableChoices(5, 0.5)
    with torch.no_grad():
        noise.logit_p.copy_(torch.tensor([0.5, 0.0, -1.0, 0.2, 1.0]))

    def loss(factor: torch.Tensor) -> torch.Tensor:
        mixed = factor @ torch.tensor([[1.0, -2.0], [0.5, 1.0], [-1.5, 0.3], [0.7, 0.7]])
        return (mixed.tanh().sum() - 0.4).square().reshape(1)

    p = torch.sigmoid(noise.logit_p)[bag.items]
    expected = torch.zeros(())
    for bits in itertools.product([0.0, 1.0], repeat=4):
        kept = torch.tensor(bits)
        chance = torch.where(kept == 1, 1 - p, p).prod()
        expected = expected + chance * loss(kept / (1 - p)).sum()
    exact = torch.autograd.grad(expected, noise.logit_p)[0]

    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(6000):
        noise.logit_p.grad = None
        mask: Mask = noise.sample(bag, generator)
        losses = loss(mask.factor)
        losses.mean().backward()
        mirrored = loss(noise.mirrored(bag, mask).factor)
        noise.disarm_(bag, mask, losses.detach(), mirrored)
        assert noise.logit_p.grad is not None
        found.append(noise.logit_p.grad.clone())
    estimates = torch.stack(found)
    error = estimates.std(0) / len(found) ** 0.5
    assert bool(((estimates.mean(0) - exact).abs() < 4.5 * error + 1e-9).all())
    assert float(exact.abs().min()) == 0  # the item that was not chosen
    assert float(exact.abs().max()) > 10 * float(error.max())


def test_the_two_passes_of_a_step_share_all_noise_but_the_masks() -> None:
    model = SIVAE(hidden=8, latent=3, num_mixtures=2)
    model._built(9, None)
    bag = Bag.of(histories()).repeated(2)
    ones = torch.ones_like(bag.weights)
    noise = torch.randn(len(bag), 3)
    first, second = (model._mixture_losses(bag, ones, noise, torch.ones(6)) for _ in range(2))
    torch.testing.assert_close(first, second)


def test_a_flow_knows_its_own_volume() -> None:
    model = IAFVAE(hidden=8, latent=4, flow_hidden=12, num_flows=3)
    model._built(9, None)
    model._others.double()
    with torch.no_grad():
        for parameter in model._others.parameters():
            parameter.normal_()
    z, context = torch.randn(1, 4, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(lambda one: model._flown(one, context)[0][0], z)[:, 0]
    exact = torch.linalg.slogdet(slopes).logabsdet
    torch.testing.assert_close(model._flown(z, context)[1].double(), exact.reshape(1), rtol=1e-5, atol=1e-5)


def test_the_learned_prior_is_the_mixture_of_its_posteriors() -> None:
    model = VampVAE(hidden=8, latent=3, num_histories=4)
    model._built(9, None)
    z = torch.randn(5, 3)
    bag = model._coder.bag
    code = model._coder.encoded(model._others["histories"]() @ bag.weight + bag.bias)
    mean, log_variance = code.chunk(2, -1)
    parts = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    exact = torch.logsumexp(parts.log_prob(z.unsqueeze(1)).sum(-1), 1) - np.log(4)
    constant = 1.5 * np.log(2 * np.pi)
    torch.testing.assert_close(model._log_prior(z) - constant, exact, rtol=1e-4, atol=1e-4)


def test_a_softmax_over_some_items_has_the_right_sum_on_average() -> None:
    """All ways to draw two of the items that nobody chose, each as likely as another."""
    matrix = csr_array(np.array([[1, 0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1]], dtype=np.float32))
    logits = torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bag = Bag.of(matrix)
    generator = torch.Generator().manual_seed(1)
    sums = {}
    for _ in range(200):
        some = Candidates.of(bag.items, 7, 2, generator)
        assert some.columns[:3].tolist() == [0, 2, 6]
        assert some.columns[some.places].tolist() == bag.items.tolist()
        drawn = tuple(sorted(some.columns[3:].tolist()))
        sums[drawn] = (logits[:, some.columns] + some.correction).exp().sum(1)
    assert len(sums) == 6
    torch.testing.assert_close(torch.stack(list(sums.values())).mean(0), logits.exp().sum(1))


@pytest.mark.parametrize("make", [MultVAE, MultDAE, SIVAE, VampVAE, IAFVAE], ids=lambda kind: kind.__name__)
def test_a_softmax_over_all_candidates_is_the_softmax_over_all_items(make: type[Autoencoder]) -> None:
    model = make(hidden=8, latent=4)
    model._built(9, None)
    bag = Bag.of(csr_array(np.eye(5, 9, dtype=np.float32) + np.eye(5, 9, k=1, dtype=np.float32)))
    found = []
    for one in (bag, bag.among(9, 100, torch.Generator().manual_seed(0))):
        model._modules().zero_grad()
        losses = model._losses(one, torch.ones(5), torch.Generator().manual_seed(3))
        losses.mean().backward()
        found.append(
            [losses.detach(), *[p.grad for p in model._modules().parameters() if p.grad is not None]]
        )
    assert len(found[0]) > 3
    torch.testing.assert_close(found[0], found[1])


def test_the_gradient_of_a_softmax_over_some_items_nears_that_over_all_as_more_are_drawn() -> None:
    """The mean over many draws: what is left is the bias of a log, as (1 - m / 40) / m for m of 40 items."""
    bag = Bag.of(histories(items=20))
    weight = torch.randn(6, 60, generator=torch.Generator().manual_seed(0)).requires_grad_()
    exact = torch.autograd.grad(choice_nll(weight, bag).sum(), weight)[0]
    errors = []
    for drawn in (10, 20, 60):
        generator = torch.Generator().manual_seed(1)
        total = torch.zeros_like(exact)
        for _ in range(500):
            some = bag.among(60, drawn, generator)
            assert some.candidates is not None
            part = weight[:, some.candidates.columns] + some.candidates.correction
            total += torch.autograd.grad(choice_nll(part, some).sum(), weight)[0]
        errors.append(float((total / 500 - exact).norm() / exact.norm()))
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 0.12
    assert errors[2] < 1e-5
