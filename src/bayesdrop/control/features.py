"""Features of a state for networks: angles as sine and cosine, everything on a fixed scale."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, real_numbers, whole_number

__all__ = ["StateFeatures", "scale_of"]


class StateFeatures(nn.Module):
    """A state without its angles, then their sines, then their cosines, each divided by its scale.

    The scales are fixed: if features were standardised again whenever data come in, the same weights would
    get other inputs, and what was learned before would be lost.

    Args:
        state_size: S, parts of a state.
        angles: places of the angles, in radians; features are in the order of the state.
        scale: one number for each feature, or one for all; 1 if None.

    Shape: (..., S) -> (..., S + number of angles).

    >>> StateFeatures(4, angles=(2,))(torch.zeros(1, 4))
    tensor([[0., 0., 0., 0., 1.]])
    """

    scale: Tensor

    def __init__(
        self, state_size: int, *, angles: Sequence[int] = (), scale: float | Sequence[float] | None = None
    ) -> None:
        super().__init__()
        owner = "StateFeatures"
        self.state_size = whole_number(owner, "state_size", state_size, at_least=1)
        self.angles = sorted(
            whole_number(owner, "angles", place, at_least=0, at_most=state_size - 1) for place in angles
        )
        if len(set(self.angles)) != len(self.angles):
            raise ValueError(must(owner, "angles", "different places", tuple(angles)))
        # Slices are cheaper than indices, forward and backward: neighbours of one kind are one slice.
        is_angle = [place in self.angles for place in range(self.state_size)]
        runs = [(kind, len(list(run))) for kind, run in itertools.groupby(is_angle)]
        self._lengths = [length for _, length in runs]
        self._is_angle = [kind for kind, _ in runs]
        self.size = state_size + len(self.angles)
        self.register_buffer("scale", scale_of(owner, "scale", scale, self.size))

    def forward(self, state: Tensor) -> Tensor:
        """The features of states."""
        if not self.angles:
            return state / self.scale
        parts = list(zip(state.split_with_sizes(self._lengths, dim=-1), self._is_angle, strict=True))
        angles = [part for part, is_angle in parts if is_angle]
        features = [part for part, is_angle in parts if not is_angle]
        features += [torch.sin(part) for part in angles]
        features += [torch.cos(part) for part in angles]
        return torch.cat(features, dim=-1) / self.scale


def scale_of(owner: str, argument: str, scale: float | Sequence[float] | None, size: int) -> Tensor:
    """Positive scales of `size` numbers, as a tensor; 1 where none are given."""
    want = f"one positive number, or {size} of them"
    found = real_numbers(owner, argument, 1.0 if scale is None else scale, want)
    if found.dim() > 1 or (found.dim() == 1 and len(found) != size):
        raise ValueError(must(owner, argument, want, scale))
    if not bool(((found > 0) & torch.isfinite(found)).all()):
        raise ValueError(must(owner, argument, want, scale))
    return found.expand(size).to(torch.get_default_dtype()).clone()
