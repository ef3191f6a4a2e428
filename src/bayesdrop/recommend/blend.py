"""Blend: a weighted mean of several models, with weights by how they rank the choices of validation users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from scipy.sparse import csr_array
from torch import Tensor

from bayesdrop.errors import must, whole_number
from bayesdrop.metrics.ranking import Ranked, ndcg_at
from bayesdrop.recommend.autoencoder import Autoencoder
from bayesdrop.recommend.base import Recommender, without_seen
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions
from bayesdrop.recommend.neighbours import EASE
from bayesdrop.recommend.sivae import SIVAE
from bayesdrop.recommend.vae import MultVAE

__all__ = ["Blend", "default_models"]

#: largest number of validation users, whose scores are all in memory
_USERS = 1000


def default_models(num_items: int, seed: int = 0) -> list[Recommender]:
    """The default models of a blend: EASE of three penalties, two VAEs, and a SIVAE with learned rates.

    Args:
        num_items: I; EASE is fitted to at most the 8,000 most popular items.
        seed: of the networks.
    """
    most = 8000 if num_items > 8000 else None
    linear = [EASE(l2=l2, max_items=most) for l2 in (100.0, 500.0, 2000.0)]
    return [*linear, MultVAE(seed=seed), MultVAE(seed=seed + 1), SIVAE(seed=seed)]


@dataclass(eq=False)
class Blend(Recommender):
    """A weighted mean of the scores of several models, each standardised over a user's items.

        score = sum_m w_m (s_m - mean s_m) / sd s_m

    Weights come from greedy selection with replacement: in each of `picks` rounds, the model is added with
    which the mean has the highest NDCG@100 on validation users, and the best of these means is the blend.
    Models that were not picked are left out.

    Args:
        models: to choose from; `default_models` if None.
        picks: rounds of the selection.
        seed: of the default models.

    Attributes:
        search: for each model, its own NDCG@100 on validation users, its decisions, and its weight.
        ndcg: NDCG@100 of the blend on them.

    Reference: Caruana, Niculescu-Mizil, Crew & Ksikes (2004).
    """

    models: Sequence[Recommender] | None = None
    picks: int = 12
    seed: int = 0
    search: list[dict[str, Any]] = field(default_factory=list, init=False, repr=False)
    ndcg: float = field(default=float("nan"), init=False, repr=False)

    def __post_init__(self) -> None:
        whole_number("Blend", "picks", self.picks, at_least=1)
        if self.models is not None and not all(isinstance(one, Recommender) for one in self.models):
            raise TypeError(must("Blend", "models", "recommenders", self.models))

    @property
    def is_random(self) -> bool:  # type: ignore[override]
        """Whether any model of the blend has draws."""
        return any(model.is_random for model, _ in self._weighed)

    def _fit(self, train: Interactions, validation: HeldOutUsers | None, *, progress: bool) -> None:
        if validation is None:
            raise ValueError(must("Blend.fit", "validation", "users to choose weights by", None))
        models: list[Recommender] = []
        some = validation.first(_USERS)
        right = torch.from_numpy(some.held.matrix.toarray() > 0)
        scores: list[Tensor] = []
        for one in self.models or default_models(len(train.items), self.seed):
            model = _like_an_earlier(one, models) if self.models is None else one
            models.append(model.fit(train, validation, progress=progress))
            scores.append(_standardised(torch.from_numpy(model.scores(some.seen))))

        def judged(total: Tensor) -> float:
            ranked = Ranked.of(without_seen(total, some.seen.matrix), right, min(100, len(train.items)))
            return ndcg_at(ranked, ranked.hits.shape[1]).mean

        alone = [judged(one) for one in scores]
        counts, best, best_value = [0] * len(models), [0] * len(models), float("-inf")
        total = torch.zeros_like(scores[0])
        for _ in range(self.picks):
            values = [judged(total + one) for one in scores]
            place = max(range(len(models)), key=values.__getitem__)
            total = total + scores[place]
            counts[place] += 1
            if values[place] > best_value:
                best, best_value = list(counts), values[place]
        self.ndcg = best_value
        self._weighed = [
            (model, count / sum(best)) for model, count in zip(models, best, strict=True) if count
        ]
        self.search = [
            {
                "model": repr(model),
                "chosen": model._facts().get("chosen", {}),
                "ndcg": value,
                "weight": count / sum(best),
            }
            for model, value, count in zip(models, alone, best, strict=True)
        ]

    def _scores(self, histories: csr_array) -> Tensor:
        return torch.stack(
            [weight * _standardised(model._scores(histories)) for model, weight in self._weighed]
        ).sum(0)

    def _draws(self, histories: csr_array, num_draws: int, seed: int) -> Tensor:
        """Draws of the models that have them, added to the scores of the others."""
        total = torch.zeros(num_draws, histories.shape[0], histories.shape[1])
        for place, (model, weight) in enumerate(self._weighed):
            if model.is_random:
                part = model._draws(histories, num_draws, seed + 7919 * place)
            else:
                part = model._scores(histories).unsqueeze(0)
            total += weight * _standardised(part)
        return total

    # files: all models of a blend in one file; names of tensors begin with the number of the model

    def options(self) -> dict[str, Any]:
        """The options of the blend and of its models, from which a file makes them again."""
        return {
            "picks": self.picks,
            "seed": self.seed,
            "parts": [
                {
                    "class": type(model).__name__,
                    "options": model.options(),
                    "facts": model._facts(),
                    "weight": weight,
                }
                for model, weight in self._weighed
            ],
            "search": self.search,
            "ndcg": self.ndcg,
        }

    @classmethod
    def _from_options(cls, options: dict[str, Any]) -> Blend:
        made = cls(picks=options["picks"], seed=options["seed"])
        made.search, made.ndcg = options["search"], float(options["ndcg"])
        for part in options["parts"]:
            model = Recommender._kinds[part["class"]]._from_options(part["options"])
            model._take_facts(part["facts"])
            made._weighed.append((model, float(part["weight"])))
        return made

    def _tensors(self) -> dict[str, Tensor]:
        return {
            f"{place}.{name}": tensor
            for place, (model, _) in enumerate(self._weighed)
            for name, tensor in model._tensors().items()
        }

    def _restore(self, tensors: dict[str, Tensor], num_items: int) -> None:
        if not self._weighed:
            raise ValueError("it has no models")
        for place, (model, _) in enumerate(self._weighed):
            start = f"{place}."
            own = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
            model._restore(own, num_items)

    _weighed: list[tuple[Recommender, float]] = field(default_factory=list, init=False, repr=False)


def _like_an_earlier(model: Recommender, earlier: Sequence[Recommender]) -> Recommender:
    """The model with the `beta` that a fitted model of equal options, but for the seed, has chosen."""
    if isinstance(model, Autoencoder):
        for one in earlier:
            if type(one) is type(model) and {**one.options(), "seed": model.seed} == model.options():
                assert isinstance(one, Autoencoder)
                return replace(model, beta=one.chosen["beta"])
    return model


def _standardised(scores: Tensor) -> Tensor:
    """Scores shifted and scaled to mean 0 and standard deviation 1 over the items of each user."""
    centred = scores - scores.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-12)
