"""Recommender: fitting, scores, lists and files of every model of choices."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from bayesdrop.errors import NoRandomness, is_one_of, must, real_number, whole_number, whole_seed
from bayesdrop.metrics.ranking import Ranked
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions, as_interactions
from bayesdrop.storage import read_tensors, write_tensors

__all__ = ["Recommendations", "Recommender"]

_KIND = "bayesdrop-recommender"
_R = TypeVar("_R", bound="Recommender")
Explore = Literal["thompson", "ucb"]
#: largest number of scores, users times items, in memory at a time
_SCORES = 2**22


@dataclass(frozen=True, eq=False)
class Recommendations:
    """Lists of items, best first.

    Attributes:
        users: (U,) ids.
        items: (U, k) ids.
        scores: (U, k); -inf where fewer than k items are left for a user.
        spread: (U, k) standard deviation of the score over draws; None without draws.
        known: (U,) how many items of the history the model knows. If it is 0, the list is that of a user
            with an empty history.
    """

    users: NDArray[Any]
    items: NDArray[Any]
    scores: NDArray[np.float32]
    spread: NDArray[np.float32] | None
    known: NDArray[np.int64]

    def table(self) -> pd.DataFrame:
        """One row for every user and item: user, rank (from 1), item, score and spread."""
        users, k = self.items.shape
        columns: dict[str, Any] = {
            "user": np.repeat(self.users, k),
            "rank": np.tile(np.arange(1, k + 1), users),
            "item": self.items.ravel(),
            "score": self.scores.ravel(),
        }
        if self.spread is not None:
            columns["spread"] = self.spread.ravel()
        frame = pd.DataFrame(columns)
        return frame[np.isfinite(frame["score"])].reset_index(drop=True)


class Recommender(ABC):
    """A model of choices. Its options are the fields of its class.

    Attributes:
        items: (I,) ids of the items it was fitted to.
    """

    items: NDArray[Any]
    _kinds: ClassVar[dict[str, type[Recommender]]] = {}
    #: whether the model has draws, and so a spread of scores
    is_random: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            Recommender._kinds[cls.__name__] = cls

    # fitting

    def fit(
        self, train: Interactions, validation: HeldOutUsers | None = None, *, progress: bool = False
    ) -> Self:
        """Fit to the users of `train`.

        Args:
            train: choices to learn from.
            validation: users by whom options are decided, for models that decide any; with the items of
                `train`.
            progress: show a bar (needs the extra "cli").
        """
        owner = f"{type(self).__name__}.fit"
        if not isinstance(train, Interactions):
            raise TypeError(must(owner, "train", "Interactions", train))
        if not len(train):
            raise ValueError(must(owner, "train", "at least one pair of a user and an item", train))
        if validation is not None and not isinstance(validation, HeldOutUsers):
            raise TypeError(must(owner, "validation", "HeldOutUsers or None", validation))
        if validation is not None:
            validation = HeldOutUsers(
                validation.seen.aligned(train.items), validation.held.aligned(train.items)
            )
            if not len(validation.held):
                raise ValueError(
                    must(owner, "validation", "users with items that are held out", validation.held)
                )
        self._fit(train, validation, progress=progress)
        self.items = train.items
        return self

    @abstractmethod
    def _fit(self, train: Interactions, validation: HeldOutUsers | None, *, progress: bool) -> None:
        """Fit the parameters to `train`."""

    # scores and lists

    @abstractmethod
    def _scores(self, histories: csr_array) -> Tensor:
        """(n, I) scores of all items for some users; higher for items that they are likely to choose next."""

    def _draws(self, histories: csr_array, num_draws: int, seed: int) -> Tensor:
        """(T, n, I) scores of T draws."""
        raise NoRandomness(f"{type(self).__name__}: nothing in it is random, so that it has no draws.")

    def scores(self, history: Any) -> NDArray[np.float32]:
        """(U, I) scores of all items, including those of the history. For many users, use `recommend`.

        Args:
            history: `Interactions`, or lists of item ids, one for each user.
        """
        matrix = self._known(history, "scores").matrix
        if not matrix.shape[0]:
            return np.zeros((0, len(self.items)), dtype=np.float32)
        parts = [self._scores(part) for _, part in self._chunks(matrix)]
        found: NDArray[np.float32] = torch.cat(parts).numpy()
        return found

    def draws(self, history: Any, num_draws: int = 20, *, seed: int = 0) -> NDArray[np.float32]:
        """(T, U, I) scores of T draws. The result is large: pass a few users at a time.

        Draws are independent: each user has noise of their own, which depends on the place in the call.

        Args:
            history: `Interactions`, or lists of item ids, one for each user.
            num_draws: T.
            seed: of the draws.

        Raises NoRandomness where the model has none.
        """
        count = whole_number(f"{type(self).__name__}.draws", "num_draws", num_draws, at_least=1)
        matrix = self._known(history, "draws").matrix
        found: NDArray[np.float32] = self._draws(matrix, count, whole_seed("draws", seed)).numpy()
        return found

    def recommend(
        self,
        history: Any,
        k: int = 20,
        *,
        exclude_seen: bool = True,
        explore: Explore | None = None,
        num_draws: int = 0,
        width: float = 1.0,
        seed: int = 0,
    ) -> Recommendations:
        """The k items of highest score for every user.

        Items of a history that the model does not know are ignored; `known` counts the others. Draws are
        independent: each user has noise of their own, which depends on the place in the call.

        Args:
            history: `Interactions`, or lists of item ids, one for each user.
            k: items of a list.
            exclude_seen: leave the items of the history out.
            explore: "thompson" ranks by the first draw, "ucb" by the mean of the draws plus `width` times
                their spread; None by the score.
            num_draws: T, number of draws for the spread, at least 2; 0 for no spread, which is T times as
                fast. With `explore`, the default is 20.
            width: factor of the spread for "ucb".
            seed: of the draws.
        """
        owner = f"{type(self).__name__}.recommend"
        count = whole_number(owner, "k", k, at_least=1)
        whole_number(owner, "num_draws", num_draws, at_least=0)
        if num_draws == 1:
            raise ValueError(must(owner, "num_draws", "0, or at least 2", num_draws))
        whole_seed(owner, seed)
        real_number(owner, "width", width, "a number")
        if explore is not None and not is_one_of(explore, ("thompson", "ucb")):
            raise ValueError(must(owner, "explore", "'thompson', 'ucb' or None", explore))
        if explore is not None and not self.is_random:
            raise ValueError(must(owner, "explore", f"None: {type(self).__name__} has no draws", explore))
        if explore is not None and not num_draws:
            num_draws = 20
        drawn = self.is_random and num_draws > 0
        found = self._known(history, "recommend")
        count = min(count, len(self.items))
        places: list[Tensor] = [torch.zeros(0, count, dtype=torch.int64)]
        values: list[Tensor] = [torch.zeros(0, count)]
        spreads: list[Tensor] = [torch.zeros(0, count)]
        for start, part in self._chunks(found.matrix, num_draws if drawn else 1):
            scores = self._scores(part)
            spread = None
            if drawn:
                draws = self._draws(part, num_draws, seed + start)
                spread = draws.std(0)
                if explore == "thompson":
                    scores = draws[0]
                elif explore == "ucb":
                    scores = draws.mean(0) + width * spread
            if exclude_seen:
                scores = without_seen(scores, part)
            top = scores.topk(count, 1)
            places.append(top.indices)
            values.append(top.values)
            if spread is not None:
                spreads.append(spread.gather(1, top.indices))
        return Recommendations(
            users=found.users,
            items=self.items[torch.cat(places).numpy()],
            scores=torch.cat(values).float().numpy(),
            spread=torch.cat(spreads).float().numpy() if drawn else None,
            known=np.diff(found.matrix.indptr).astype(np.int64),
        )

    def ranked(self, held_out: HeldOutUsers, length: int = 100) -> Ranked:
        """Lists for held-out users, with the hits in them, for the ranking metrics of `bayesdrop.metrics`.

        Args:
            held_out: users of whom a part of the choices is hidden.
            length: items of a list.
        """
        seen = self._known(held_out.seen, "ranked").matrix
        held = held_out.held.aligned(self.items).matrix
        if not held.nnz:
            want = "users with items that are held out and that the model knows"
            raise ValueError(must(f"{type(self).__name__}.ranked", "held_out", want, held_out.held))
        parts = []
        for start, part in self._chunks(seen):
            right = torch.from_numpy(held[start : start + part.shape[0]].toarray() > 0)
            parts.append(Ranked.of(without_seen(self._scores(part), part), right, length))
        return Ranked.joined(parts)

    def _chunks(self, matrix: csr_array, times: int = 1) -> Iterator[tuple[int, csr_array]]:
        rows = max(1, _SCORES // (matrix.shape[1] * times))
        for start in range(0, matrix.shape[0], rows):
            yield start, matrix[start : start + rows]

    def _known(self, history: Any, method: str) -> Interactions:
        owner = f"{type(self).__name__}.{method}"
        if not hasattr(self, "items"):
            raise ValueError(f"{owner}: the model has not been fitted. Call fit first.")
        return as_interactions(history, self.items, owner)

    # files

    @abstractmethod
    def _tensors(self) -> dict[str, Tensor]:
        """The fitted tensors by name."""

    @abstractmethod
    def _restore(self, tensors: dict[str, Tensor], num_items: int) -> None:
        """Set the fitted tensors; raise where they do not fit the options."""

    def _facts(self) -> dict[str, Any]:
        """What a file holds besides options and tensors, such as decisions of the fit."""
        return {}

    def _take_facts(self, facts: dict[str, Any]) -> None:
        """Set what `_facts` returned; raise where it is not valid."""
        if facts:
            raise ValueError("it says what such a model does not choose")

    def options(self) -> dict[str, Any]:
        """The options by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]

    @classmethod
    def _from_options(cls, options: dict[str, Any]) -> Any:
        """A model that is not fitted yet, from a result of `options`."""
        return cls(**{name: _tuples(value) for name, value in options.items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file; nothing is pickled."""
        owner = f"{type(self).__name__}.save"
        if not hasattr(self, "items"):
            raise ValueError(f"{owner}: the model has not been fitted. Call fit first.")
        header = {
            "class": type(self).__name__,
            "options": self.options(),
            "facts": self._facts(),
            "items": self.items.tolist(),
            "items_kind": self.items.dtype.kind,
        }
        write_tensors(path, self._tensors(), kind=_KIND, header=header, owner=owner)

    @classmethod
    def load(cls: type[_R], path: str | os.PathLike[str]) -> _R:
        """The model of a file that `save` wrote; `Recommender.load` reads models of every class."""
        owner = f"{cls.__name__}.load"
        tensors, header = read_tensors(path, kind=_KIND, owner=owner)
        kind = Recommender._kinds.get(str(header.get("class")))
        if kind is None or not issubclass(kind, cls):
            want = f"a file of a {cls.__name__}"
            raise ValueError(must(owner, "path", want, f"{os.fspath(path)}, of a {header.get('class')}"))
        try:
            made: Any = kind._from_options(header["options"])
            items = np.asarray(header["items"], dtype=object if header["items_kind"] == "O" else None)
            if items.ndim != 1 or not len(items) or items.dtype.kind != header["items_kind"]:
                raise ValueError("its items make no sense")
            made._restore(tensors, len(items))
            made._take_facts(header["facts"])
        except Exception as error:
            raise ValueError(
                f"{owner}: the description in {os.fspath(path)} is damaged ({error})."
            ) from error
        made.items = items
        found: _R = made
        return found


def without_seen(scores: Tensor, histories: csr_array) -> Tensor:
    """Scores with -inf for the items of the histories."""
    rows = np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))
    changed = scores.clone()
    changed[torch.from_numpy(rows), torch.from_numpy(histories.indices.astype(np.int64))] = -torch.inf
    return changed


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def of_shape(
    tensors: dict[str, Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Tensor:
    """A tensor of a file; raise where it is missing or has another shape or dtype."""
    tensor = tensors[name]
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"its {name} make no sense")
    return tensor
