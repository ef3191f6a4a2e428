"""Real sequences to learn, and sequences from outside their distribution."""

from __future__ import annotations

import codecs
import random
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bayesdrop.data import DataNotFound, load_co2, load_fashion_mnist, load_mnist, load_solar
from bayesdrop.errors import must

__all__ = ["ALPHABET", "Problem", "Sizes", "load_problem"]

#: the characters of texts; whatever else there is becomes a question mark
ALPHABET = " " + string.digits + string.ascii_letters + string.punctuation
_TEXT_STEPS, _SERIES_STEPS = 50, 24
_PLACES = {character: place for place, character in enumerate(ALPHABET)}


@dataclass(frozen=True)
class Sizes:
    """How many sequences there are, at most, of problems and for tests."""

    text: int  #: to train on
    images: int  #: to train on
    test: int  #: held out, of any problem


@dataclass(frozen=True, eq=False)
class Problem:
    """Sequences, and what is to be predicted of them."""

    kind: Literal["text", "class", "number"]  #: a label at every step; one label, or number, at the end
    x: Tensor  #: (N, L) characters, or (N, L, D), to train on
    y: Tensor  #: (N, L), (N,) or (N, 1)
    x_new: Tensor  #: held out
    y_new: Tensor
    outside: Mapping[str, Tensor]  #: by its name, what `x_new` is changed into, or others of its shape


def load_problem(name: str, sizes: Sizes, seed: int) -> Problem:
    """The sequences of a problem. `seed` chooses them, except for a series, which is always split in one way.

    Raises:
        DataNotFound: they are not at hand.
    """
    if name == "text":
        return _text(sizes, seed)
    if name == "digits":
        return _digits(sizes, seed)
    if name == "CO2":
        # Before 1965 some months have no measurement.
        return _series(load_co2().between(1965, 2002).y, sizes, seed)
    if name == "solar":
        return _series(load_solar().y.to(torch.get_default_dtype()), sizes, seed)
    raise ValueError(must("gal2016-sequences", "problems", "text, digits, CO2 or solar", name))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _text(sizes: Sizes, seed: int) -> Problem:
    """Pages of Python's reference, in an order by `seed`: the first to train on, the last held out."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise DataNotFound("pydoc_data.topics: this Python comes without its reference.") from error
    pages = [topics[name] for name in sorted(topics)]
    random.Random(seed).shuffle(pages)
    text = "".join(
        character if character in _PLACES else "?" for character in " ".join(" ".join(pages).split())
    )
    needed = (sizes.text + sizes.test) * _TEXT_STEPS + 2
    if len(text) < needed:
        raise ValueError(
            must("gal2016-sequences", "text_sequences", f"at most {len(text)} characters", needed)
        )
    first, last = text[: sizes.text * _TEXT_STEPS + 1], text[-sizes.test * _TEXT_STEPS - 1 :]
    (x, y), (x_new, y_new) = (_windows(_encoded(part)) for part in (first, last))
    order = torch.stack([torch.randperm(_TEXT_STEPS, generator=_generator(row)) for row in range(len(x_new))])
    outside = {
        "backwards": x_new.flip(1),
        "shuffled": x_new.gather(1, order),
        "rot13": _windows(_encoded(codecs.encode(last, "rot13")))[0],
    }
    return Problem("text", x, y, x_new, y_new, outside)


def _encoded(text: str) -> Tensor:
    return torch.tensor([_PLACES[character] for character in text])


def _windows(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Consecutive sequences (N, L), and for every character the next one (N, L)."""
    return codes[:-1].reshape(-1, _TEXT_STEPS), codes[1:].reshape(-1, _TEXT_STEPS)


def _digits(sizes: Sizes, seed: int) -> Problem:
    """Images as sequences of 28 rows."""
    data = load_mnist()
    rows = torch.randperm(len(data.y_train), generator=_generator(seed))[: sizes.images]
    new = torch.randperm(len(data.y_test), generator=_generator(seed))[: sizes.test]
    x, x_new = data.x_train[rows].float() / 255, data.x_test[new].float() / 255
    clothes = load_fashion_mnist().x_test[new].float() / 255
    outside = {"backwards": x_new.flip(1), "a quarter turned": x_new.rot90(1, (1, 2)), "clothes": clothes}
    return Problem("class", x, data.y_train[rows], x_new, data.y_test[new], outside)


def _series(level: Tensor, sizes: Sizes, seed: int) -> Problem:
    """Windows of changes from step to step, standardised by the first 70 %; later ones are held out."""
    change = level[1:, 0] - level[:-1, 0]
    split = round(0.7 * len(change))
    change = (change - change[:split].mean()) / change[:split].std()
    past, late = change[:split], change[split:]
    (x, y), (x_new, y_new) = (_sliding_windows(part) for part in (past, late))
    x_new, y_new = x_new[: sizes.test], y_new[: sizes.test]
    order = torch.stack(
        [torch.randperm(_SERIES_STEPS, generator=_generator(row)) for row in range(len(x_new))]
    )
    fast = torch.cat([_sliding_windows(late[start::2])[0] for start in (0, 1)])[: sizes.test]
    outside = {
        "backwards": x_new.flip(1),
        "shuffled": x_new.gather(1, order.unsqueeze(-1)),
        "twice as fast": fast,
    }
    return Problem("number", x, y, x_new, y_new, outside)


def _sliding_windows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Windows (N, L, 1) that begin at every step, and the value after each (N, 1)."""
    windows = values.unfold(0, _SERIES_STEPS + 1, 1)
    return windows[:, :-1].unsqueeze(-1).contiguous(), windows[:, -1:].contiguous()
