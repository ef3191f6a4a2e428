"""Training of a network of choices: batches of users, averaged weights, and when to stop."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import Diverged
from bayesdrop.metrics.ranking import Ranked, ndcg_at
from bayesdrop.progress import progress_bar
from bayesdrop.recommend.histories import Bag
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions

__all__ = ["CHECKED", "ChoiceNetwork", "Course", "trained"]

#: largest number of validation users that are scored after an epoch
CHECKED = 1000
#: how fast the average forgets: the weights of step t enter it by _RECENT / (t + _RECENT)
_RECENT = 10


class ChoiceNetwork(Protocol):
    """What training needs of a network: options, losses, parameters, and lists for validation users."""

    items: Any
    batch_size: int | None
    sampled_items: int | None
    epochs: int | None
    patience: int
    anneal_steps: int
    beta_per_choice: bool
    weight_decay: float
    average: bool
    seed: int

    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        """(B,) the loss of every user; `weight`, (B,), is the weight of the divergence."""

    def _learned(self) -> list[Tensor]:
        """The parameters that training changes."""

    def _decayed(self) -> list[Tensor]:
        """The parameters that `weight_decay` penalises."""

    def _groups(self) -> list[dict[str, Any]]:
        """Parameters with their learning rates."""

    def ranked(self, held_out: HeldOutUsers, length: int = 100) -> Ranked:
        """Lists for held-out users, with the hits in them."""


@dataclass(eq=False)
class Course:
    """The result of one training run.

    Attributes:
        beta: the weight of the divergence, at its full size.
        weights: of the epoch with the best validation score; of the last one without validation users.
        history: validation NDCG@100 of every epoch.
        seconds: CPU seconds of training up to the end of every epoch, validation left out.
    """

    beta: float
    weights: list[Tensor] = field(default_factory=list)
    history: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The highest validation score; -inf without validation users."""
        return max(self.history, default=-math.inf)


def trained(
    model: ChoiceNetwork,
    train: Interactions,
    validation: HeldOutUsers | None,
    beta: float,
    *,
    progress: bool,
) -> Course:
    """Train a network that has been built. The result holds the weights; the network must be given them.

    Args:
        model: the network, with its losses.
        train: choices to learn from.
        validation: users by whose score the best epoch is chosen and training stops.
        beta: weight of the divergence.
        progress: show a bar.
    """
    course = Course(beta)
    matrix = train.matrix[np.flatnonzero(np.diff(train.matrix.indptr))]
    users = matrix.shape[0]
    steps = -(-users // (model.batch_size or min(250, max(32, -(-users // 16)))))
    epochs = model.epochs or max(25 if validation is None else 100, -(-400 // steps))
    generator = torch.Generator().manual_seed(model.seed + 1)
    order = np.random.default_rng(model.seed)
    parameters = model._learned()
    optimizer = torch.optim.Adam(model._groups(), fused=True)
    averaged = [one.detach().clone() for one in parameters]
    waited, step = 0, 0
    with progress_bar(type(model).__name__, epochs, show=progress) as advance:
        for epoch in range(epochs):
            start = time.process_time()
            for rows in np.array_split(order.permutation(users), steps):
                step += 1
                weight = beta * min(1.0, step / model.anneal_steps)
                bag = Bag.of(matrix, rows)
                if model.sampled_items is not None:
                    bag = bag.among(matrix.shape[1], model.sampled_items, generator)
                _step(model, bag, weight, optimizer, generator)
                if model.average:
                    with torch.no_grad():
                        torch._foreach_lerp_(averaged, parameters, _RECENT / (step + _RECENT))
            spent = time.process_time() - start
            course.seconds.append(spent + (course.seconds[-1] if course.seconds else 0.0))
            if not model.average:
                averaged = [one.detach().clone() for one in parameters]
            if not all(bool(one.isfinite().all()) for one in parameters):
                raise Diverged(
                    f"{type(model).__name__}.fit: the weights are not finite. Lower `lr`.",
                    step=step,
                    epoch=epoch + 1,
                )
            if validation is None:
                advance(1, "")
                continue
            score = _validated(model, validation, parameters, averaged)
            advance(1, f"NDCG@100 {score:.4f}")
            if score > course.best:
                waited = 0
                course.weights = [one.clone() for one in averaged]
            else:
                waited += 1
            course.history.append(score)
            if waited >= model.patience and step >= model.anneal_steps:
                break
    if not course.weights:
        course.weights = averaged
    return course


def _step(
    model: ChoiceNetwork, bag: Bag, beta: float, optimizer: torch.optim.Optimizer, generator: torch.Generator
) -> None:
    weight = beta * bag.counts if model.beta_per_choice else torch.full_like(bag.counts, beta)
    optimizer.zero_grad()
    loss = model._losses(bag, weight, generator).mean()
    if model.weight_decay:
        squares = [weight.square().sum() for weight in model._decayed()]
        loss = loss + model.weight_decay * torch.stack(squares).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _validated(
    model: ChoiceNetwork, validation: HeldOutUsers, parameters: list[Tensor], averaged: list[Tensor]
) -> float:
    """NDCG@100 of the averaged weights, by the mean network."""
    own = [one.detach().clone() for one in parameters]
    with torch.no_grad():
        torch._foreach_copy_(parameters, averaged)
        ranked = model.ranked(validation.first(CHECKED), min(100, len(model.items)))
        torch._foreach_copy_(parameters, own)
    return ndcg_at(ranked, ranked.hits.shape[1]).mean
