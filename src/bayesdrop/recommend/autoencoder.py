"""Autoencoder: the options, training, scores, draws and files that all networks of this package share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, must_be_flag, real_number, whole_number, whole_seed
from bayesdrop.metrics.ranking import ndcg_at
from bayesdrop.recommend.base import Recommender, of_shape
from bayesdrop.recommend.coder import ACTIVATIONS, Coder
from bayesdrop.recommend.histories import Bag
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions
from bayesdrop.recommend.masks import ChoiceNoise, FixedChoices, NoNoise
from bayesdrop.recommend.training import CHECKED, Course, trained
from bayesdrop.vae.gaussian import drawn_code

__all__ = ["Autoencoder"]

#: weights of the divergence to try, in this order: few users need a stronger prior than many
BETAS = (0.0035, 0.007, 0.014, 0.028)


@dataclass(eq=False)
class Autoencoder(Recommender):
    """A network that learns to predict all choices of a user from a part of them.

    Training uses batches of users, Adam, and an average of the weights in which later steps count more.
    With validation users, the averaged weights of the epoch with the best NDCG@100 are the result, and
    training stops after `patience` epochs without a better one. Validation users also decide the weight of
    the divergence, where `beta` has several, and whether a score is that of the mean network or an average
    over draws. `chosen` holds these decisions.

    Args:
        hidden: width of the encoder.
        latent: numbers of a code.
        decoder_hidden: widths of the decoder's layers; none for a linear decoder.
        activation: "swish", "tanh", "relu" or "sigmoid".
        layer_norm: normalise the encoder's layer.
        p: chance of dropping a choice from the history in training.
        beta: weight of the divergence from the prior, for every choice of a user or for every user. Several
            are tried in their order, a run for each, until the validation score falls; without validation
            users, the first is used.
        beta_per_choice: whether `beta` is multiplied by the number of a user's choices.
        anneal_steps: steps over which that weight grows to its full size.
        weight_decay: factor of the squared weights, which are added to the loss.
        lr: learning rate of Adam.
        batch_size: users of a step; None for a sixteenth of all users, but from 32 to 250.
        sampled_items: for many items: how many of the items that no user of a batch chose are in the softmax
            of a step, chosen at random and weighted so that its sum is right on average; None for all.
        epochs: largest number of passes over the users; None for 100 with validation users and 25 without,
            but at least 400 steps.
        patience: epochs without a better validation score before training stops.
        average: whether weights are averaged over steps.
        score: "mean" for the score of the mean network, "draws" for the log of the probability averaged over
            `score_draws` draws, or None: where choices are dropped and there are validation users, "draws" if
            that makes their NDCG@100 higher by two paired standard errors, and else "mean".
        score_draws: number of draws of such a score.
        seed: of initial weights, order of users and noise.

    Attributes:
        chosen: the decisions, "beta" and "score".
        search: the validation score of every weight of the divergence that was tried.
        history: validation NDCG@100 of every epoch, of the chosen run.
        seconds: CPU seconds of that run up to the end of every epoch, validation left out.
    """

    hidden: int = 600
    latent: int = 200
    decoder_hidden: tuple[int, ...] = ()
    activation: str = "swish"
    layer_norm: bool = True
    p: float = 0.5
    beta: float | tuple[float, ...] = BETAS
    beta_per_choice: bool = True
    anneal_steps: int = 400
    weight_decay: float = 0.0
    lr: float = 1e-3
    batch_size: int | None = None
    sampled_items: int | None = None
    epochs: int | None = None
    patience: int = 8
    average: bool = True
    score: Literal["mean", "draws"] | None = None
    score_draws: int = 20
    seed: int = 0
    chosen: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    search: list[dict[str, Any]] = field(default_factory=list, init=False, repr=False)
    history: list[float] = field(default_factory=list, init=False, repr=False)
    seconds: list[float] = field(default_factory=list, init=False, repr=False)

    is_random: ClassVar[bool] = True
    #: outputs of the encoder for each number of the code
    _codes: ClassVar[int] = 2
    #: whether `beta` has an effect
    _has_divergence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        owner = type(self).__name__
        self.decoder_hidden = tuple(self.decoder_hidden)
        for name in ("hidden", "latent", "anneal_steps", "patience", "score_draws"):
            whole_number(owner, name, getattr(self, name), at_least=1)
        for width in self.decoder_hidden:
            whole_number(owner, "decoder_hidden", width, at_least=1)
        for name in ("epochs", "batch_size", "sampled_items"):
            if getattr(self, name) is not None:
                whole_number(owner, name, getattr(self, name), at_least=1)
        real_number(owner, "p", self.p, "in [0, 1)", at_least=0, below=1)
        if isinstance(self.beta, tuple | list):
            self.beta = tuple(self.beta)
        betas = self._betas()
        if not betas:
            raise ValueError(must(owner, "beta", "a number, or several", self.beta))
        for beta in betas:
            real_number(owner, "beta", beta, "a number of at least 0", at_least=0)
        if not is_one_of(self.score, ("mean", "draws", None)):
            raise ValueError(must(owner, "score", "'mean', 'draws' or None", self.score))
        real_number(owner, "weight_decay", self.weight_decay, "a number of at least 0", at_least=0)
        real_number(owner, "lr", self.lr, "a positive number", above=0)
        must_be_flag(
            owner, layer_norm=self.layer_norm, beta_per_choice=self.beta_per_choice, average=self.average
        )
        whole_seed(owner, self.seed)
        if not is_one_of(self.activation, ACTIVATIONS):
            want = f"one of {', '.join(map(repr, ACTIVATIONS))}"
            raise ValueError(must(owner, "activation", want, self.activation))

    # what subclasses define

    def _noise(self, num_items: int) -> ChoiceNoise:
        """Dropout of choices."""
        return FixedChoices(self.p) if self.p > 0 else NoNoise()

    def _parts(self, num_items: int, generator: torch.Generator) -> dict[str, nn.Module]:
        """Modules other than encoder and decoder."""
        return {}

    @abstractmethod
    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        """(B,) the loss of every user; gradients that autograd cannot compute are added to parameters here.

        Args:
            bag: the choices of the users.
            weight: (B,) of the divergence.
            generator: of random numbers.
        """

    def _code(self, code: Tensor, noise: Tensor | None) -> Tensor:
        """(B, latent) the input of the decoder: the mean of the code without noise, a sample with it.

        Args:
            code: (B, ...) output of the encoder.
            noise: standard normal, (B, latent) or one row for all.
        """
        mean, log_variance = code.chunk(2, -1)
        return mean if noise is None else drawn_code(mean, log_variance, noise)

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

    def _betas(self) -> tuple[float, ...]:
        return self.beta if isinstance(self.beta, tuple) else (self.beta,)

    def _fit(self, train: Interactions, validation: HeldOutUsers | None, *, progress: bool) -> None:
        counts = torch.from_numpy(train.counts()).float()
        log_share = ((counts + 0.5) / (counts.sum() + 1)).log()
        self.items = train.items
        self.chosen, self.search = {}, []
        kept: Course | None = None
        for beta in self._betas() if validation is not None and self._has_divergence else self._betas()[:1]:
            self._built(len(train.items), log_share)
            course = trained(self, train, validation, beta, progress=progress)
            self.search.append({"beta": beta, "ndcg": course.best, "epochs": len(course.seconds)})
            if kept is not None and course.best <= kept.best:
                break
            kept = course
        assert kept is not None
        with torch.no_grad():
            torch._foreach_copy_(self._learned(), kept.weights)
        self.history, self.seconds = kept.history, kept.seconds
        if self._has_divergence:
            self.chosen["beta"] = kept.beta
        self.chosen["score"] = self._preferred_score(validation)

    def _learned(self) -> list[Tensor]:
        """The parameters that training changes."""
        return [one for one in self._modules().parameters() if one.requires_grad]

    def _decayed(self) -> list[Tensor]:
        """The parameters that `weight_decay` penalises."""
        return [one for one in self._coder.parameters() if one.dim() > 1]

    def _preferred_score(self, validation: HeldOutUsers | None) -> str:
        if self.score is not None:
            return self.score
        if validation is None or not self._choice_noise.is_random:
            return "mean"
        users = validation.first(CHECKED)
        found = {}
        for name in ("mean", "draws"):
            self.chosen["score"] = name
            ranked = self.ranked(users, min(100, len(self.items)))
            found[name] = ndcg_at(ranked, ranked.hits.shape[1])
        gain = found["draws"] - found["mean"]
        return "draws" if gain.mean > 2 * gain.standard_error else "mean"

    # scores

    @torch.no_grad()
    def _scores(self, histories: csr_array) -> Tensor:
        bag = Bag.of(histories)
        if self.chosen.get("score", "mean") == "mean":
            return torch.log_softmax(self._coder.logits(self._code(self._coder(bag), None)), -1)
        # A draw is one function: all users have the same noise of items and code, so that the score of a user
        # does not depend on the other users of the call.
        generator = torch.Generator().manual_seed(self.seed + 2)
        every = Bag.of(csr_array(np.ones((1, histories.shape[1]), dtype=np.float32)))
        total = torch.zeros(histories.shape)
        for _ in range(self.score_draws):
            factor = self._choice_noise.sample(every, generator).factor
            noise = torch.randn(1, self.latent, generator=generator)
            z = self._code(self._coder(bag.scaled(factor[bag.items])), noise)
            total += torch.softmax(self._coder.logits(z), -1)
        return total.div_(self.score_draws).log_()

    @torch.no_grad()
    def _draws(self, histories: csr_array, num_draws: int, seed: int) -> Tensor:
        """(T, n, I) log-probabilities of T draws, with noise of the history and of the code."""
        generator = torch.Generator().manual_seed(seed)
        bag = Bag.of(histories).repeated(num_draws)
        bag = bag.scaled(self._choice_noise.sample(bag, generator).factor)
        z = self._code(self._coder(bag), torch.randn(len(bag), self.latent, generator=generator))
        found = torch.log_softmax(self._coder.logits(z), -1)
        return found.view(num_draws, histories.shape[0], -1)

    def rates(self) -> Tensor | None:
        """The chance of dropping a choice: one number, or one for every item where rates are learned."""
        return self._choice_noise.rates()

    # files

    def _shapes(self, num_items: int) -> dict[str, tuple[int, ...]]:
        """Shapes of all large tensors, from the options."""
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
        # Checked before anything is built: the options of a file may ask for more memory than there is.
        for name, shape in self._shapes(num_items).items():
            of_shape(tensors, name, shape)
        self._built(num_items, None)
        self._modules().load_state_dict(tensors)

    def _facts(self) -> dict[str, Any]:
        return {"chosen": self.chosen, "search": self.search}

    def _take_facts(self, facts: dict[str, Any]) -> None:
        if not is_one_of(facts["chosen"]["score"], ("mean", "draws")):
            raise ValueError("what it chose makes no sense")
        self.chosen, self.search = facts["chosen"], facts["search"]
