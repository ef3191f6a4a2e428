"""What all networks of this package share: options, training, scores, draws, files."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from bayesdrop.errors import Diverged, is_one_of, must, must_be_flag, real_number, whole_number, whole_seed
from bayesdrop.metrics.ranking import ndcg_at
from bayesdrop.progress import progress_bar
from bayesdrop.recommend.base import Recommender, of_shape
from bayesdrop.recommend.coder import ACTIVATIONS, Coder
from bayesdrop.recommend.histories import Bag
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions
from bayesdrop.recommend.masks import ChoiceNoise, FixedChoices, NoNoise

__all__ = ["Autoencoder"]

#: validation users that are looked at after every epoch
_CHECKED = 1000
#: how fast averaged weights forget: step t counts _RECENT / (t + _RECENT)
_RECENT = 10


@dataclass(eq=False)
class Autoencoder(Recommender):
    """A network that learns to give a user's choices back from a part of them.

    Training takes batches of users, Adam, and an average of the weights in which later steps count more.
    With validation users, the averaged weights of the epoch of the best NDCG@100 are kept, and training
    stops after `patience` epochs without a better one.

    Args:
        hidden: width of the encoder.
        latent: numbers of a code.
        decoder_hidden: widths of the decoder's layers; none for a linear decoder.
        activation: "swish", "tanh", "relu" or "sigmoid".
        layer_norm: normalise the encoder's layer.
        p: chance of dropping a choice from the history in training.
        beta: weight of the divergence from the prior, for every choice of a user or for every user.
        beta_per_choice: whether `beta` is for every choice.
        anneal_steps: steps over which that weight grows to its full size.
        weight_decay: of squared weights, added to the loss.
        lr: learning rate of Adam.
        batch_size: users of a step.
        epochs: passes over the users at the most; None for 100 with validation users and 25 without, and
            400 steps at the least.
        patience: epochs without a better validation score before training stops.
        average: whether weights are averaged over steps.
        seed: of first weights, order of users and noise.
    """

    hidden: int = 600
    latent: int = 200
    decoder_hidden: tuple[int, ...] = ()
    activation: str = "swish"
    layer_norm: bool = True
    p: float = 0.5
    beta: float = 0.0035
    beta_per_choice: bool = True
    anneal_steps: int = 400
    weight_decay: float = 0.0
    lr: float = 1e-3
    batch_size: int = 250
    epochs: int | None = None
    patience: int = 8
    average: bool = True
    seed: int = 0
    #: validation NDCG@100 of every epoch
    history: list[float] = field(default_factory=list, init=False, repr=False)
    #: CPU seconds of training up to the end of every epoch, validation left out
    seconds: list[float] = field(default_factory=list, init=False, repr=False)

    is_random: ClassVar[bool] = True
    #: numbers that the encoder gives for each number of the code
    _codes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        owner = type(self).__name__
        self.decoder_hidden = tuple(self.decoder_hidden)
        for name in ("hidden", "latent", "anneal_steps", "batch_size", "patience"):
            whole_number(owner, name, getattr(self, name), at_least=1)
        for width in self.decoder_hidden:
            whole_number(owner, "decoder_hidden", width, at_least=1)
        if self.epochs is not None:
            whole_number(owner, "epochs", self.epochs, at_least=1)
        real_number(owner, "p", self.p, "in [0, 1)", at_least=0, below=1)
        real_number(owner, "beta", self.beta, "a number of at least 0", at_least=0)
        real_number(owner, "weight_decay", self.weight_decay, "a number of at least 0", at_least=0)
        real_number(owner, "lr", self.lr, "a positive number", above=0)
        must_be_flag(
            owner, layer_norm=self.layer_norm, beta_per_choice=self.beta_per_choice, average=self.average
        )
        whole_seed(owner, self.seed)
        if not is_one_of(self.activation, ACTIVATIONS):
            want = f"one of {', '.join(map(repr, ACTIVATIONS))}"
            raise ValueError(must(owner, "activation", want, self.activation))

    # what a subclass says

    def _noise(self, num_items: int) -> ChoiceNoise:
        """Dropout of choices."""
        return FixedChoices(self.p) if self.p > 0 else NoNoise()

    def _parts(self, num_items: int, generator: torch.Generator) -> dict[str, nn.Module]:
        """Networks beside encoder and decoder."""
        return {}

    @abstractmethod
    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        """(B,) the loss of every user, and whatever gradient autograd cannot find.

        Args:
            bag: what the users chose.
            weight: (B,) of the divergence.
            generator: of random numbers.
        """

    def _code(self, code: Tensor, bag: Bag, generator: torch.Generator | None) -> Tensor:
        """(B, latent) what the decoder is given: the mean without a generator, a draw with one."""
        mean, log_variance = code.chunk(2, -1)
        if generator is None:
            return mean
        noise = torch.randn(mean.shape, generator=generator)
        return mean + (0.5 * log_variance).exp() * noise

    # training

    def _built(self, num_items: int, log_share: Tensor | None) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self._coder = Coder(
            num_items,
            hidden=self.hidden,
            code=self._codes * self.latent,
            latent=self.latent,
            decoder_hidden=self.decoder_hidden,
            activation=self.activation,
            layer_norm=self.layer_norm,
            log_share=log_share,
            generator=generator,
        )
        self._choice_noise = self._noise(num_items)
        self._others = nn.ModuleDict(self._parts(num_items, generator))

    def _modules(self) -> nn.ModuleDict:
        return nn.ModuleDict(
            {"coder": self._coder, "choice_noise": self._choice_noise, "others": self._others}
        )

    def _groups(self) -> list[dict[str, Any]]:
        """Parameters with their learning rates."""
        return [{"params": list(self._modules().parameters()), "lr": self.lr}]

    def _fit(self, train: Interactions, validation: HeldOutUsers | None, *, progress: bool) -> None:
        counts = torch.from_numpy(train.counts()).float()
        self._built(len(train.items), ((counts + 0.5) / (counts.sum() + 1)).log())
        self.items = train.items
        self.history, self.seconds = [], []
        matrix = train.matrix[np.flatnonzero(np.diff(train.matrix.indptr))]
        steps = -(-matrix.shape[0] // self.batch_size)
        epochs = self.epochs or max(25 if validation is None else 100, -(-400 // steps))
        generator = torch.Generator().manual_seed(self.seed + 1)
        order = np.random.default_rng(self.seed)
        modules = self._modules()
        parameters: list[Tensor] = [one for one in modules.parameters() if one.requires_grad]
        optimizer = torch.optim.Adam(self._groups(), fused=True)
        averaged = [one.detach().clone() for one in parameters]
        best: list[Tensor] | None = None
        best_score, waited, step = -math.inf, 0, 0
        with progress_bar(type(self).__name__, epochs, show=progress) as advance:
            for epoch in range(epochs):
                start = time.process_time()
                for users in np.array_split(order.permutation(matrix.shape[0]), steps):
                    step += 1
                    self._step(Bag.of(matrix, users), step, optimizer, generator)
                    if self.average:
                        with torch.no_grad():
                            torch._foreach_lerp_(averaged, parameters, _RECENT / (step + _RECENT))
                spent = time.process_time() - start
                self.seconds.append(spent + (self.seconds[-1] if self.seconds else 0.0))
                if not self.average:
                    averaged = [one.detach().clone() for one in parameters]
                if not all(bool(one.isfinite().all()) for one in parameters):
                    raise Diverged(
                        f"{type(self).__name__}.fit: the weights are not finite. Lower `lr`.",
                        step=step,
                        epoch=epoch + 1,
                    )
                if validation is None:
                    advance(1, "")
                    continue
                score = self._validated(validation, parameters, averaged)
                self.history.append(score)
                advance(1, f"NDCG@100 {score:.4f}")
                if score > best_score:
                    best_score, waited = score, 0
                    best = [one.clone() for one in averaged]
                else:
                    waited += 1
                if waited >= self.patience and step >= self.anneal_steps:
                    break
        with torch.no_grad():
            torch._foreach_copy_(parameters, averaged if best is None else best)

    def _step(
        self, bag: Bag, step: int, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> None:
        ramp = self.beta * min(1.0, step / self.anneal_steps)
        weight = ramp * bag.counts if self.beta_per_choice else torch.full_like(bag.counts, ramp)
        optimizer.zero_grad()
        loss = self._losses(bag, weight, generator).mean()
        if self.weight_decay:
            squares = [p.square().sum() for p in self._coder.parameters() if p.dim() > 1]
            loss = loss + self.weight_decay * torch.stack(squares).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def _validated(self, validation: HeldOutUsers, parameters: list[Tensor], averaged: list[Tensor]) -> float:
        """NDCG@100 of the averaged weights."""
        own = [one.detach().clone() for one in parameters]
        with torch.no_grad():
            torch._foreach_copy_(parameters, averaged)
            ranked = self.ranked(validation.first(_CHECKED), min(100, len(self.items)))
            torch._foreach_copy_(parameters, own)
        return ndcg_at(ranked, ranked.hits.shape[1]).mean

    # scores

    @torch.no_grad()
    def _scores(self, histories: csr_array) -> Tensor:
        bag = Bag.of(histories)
        z = self._code(self._coder(bag), bag, None)
        return torch.log_softmax(self._coder.logits(z), -1)

    @torch.no_grad()
    def _draws(self, histories: csr_array, num_draws: int, seed: int) -> Tensor:
        """(T, n, I) log-probabilities of draws: masks of the history, and codes."""
        generator = torch.Generator().manual_seed(seed)
        bag = Bag.of(histories).repeated(num_draws)
        bag = bag.scaled(self._choice_noise.sample(bag, generator).factor)
        z = self._code(self._coder(bag), bag, generator)
        found = torch.log_softmax(self._coder.logits(z), -1)
        return found.view(num_draws, histories.shape[0], -1)

    def rates(self) -> Tensor | None:
        """Chance of dropping a choice: one number, or one for every item where it was learned."""
        return self._choice_noise.rates()

    # files

    def _shapes(self, num_items: int) -> dict[str, tuple[int, ...]]:
        """Shapes of all large tensors, as the options have them."""
        widths = [self.latent, *self.decoder_hidden, num_items]
        return {
            "coder.bag.weight": (num_items, self.hidden),
            "coder.code.weight": (self._codes * self.latent, self.hidden),
            **{
                f"coder.decoder.{place}.weight": (after, before)
                for place, (before, after) in enumerate(pairwise(widths))
            },
        }

    def _tensors(self) -> dict[str, Tensor]:
        return self._modules().state_dict()

    def _restore(self, tensors: dict[str, Tensor], num_items: int) -> None:
        # Before anything is made: options of a stranger may ask for more memory than there is.
        for name, shape in self._shapes(num_items).items():
            of_shape(tensors, name, shape)
        self._built(num_items, None)
        self._modules().load_state_dict(tensors)
