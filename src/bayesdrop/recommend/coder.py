"""Encoder and decoder of recommenders: from a bag of choices to a code, from a code to logits of items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesdrop.recommend.histories import Bag, Candidates, ItemBag

__all__ = ["ACTIVATIONS", "Coder"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "swish": F.silu,
    "tanh": torch.tanh,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
}


class Coder(nn.Module):
    """A bag of choices -> hidden -> code, and code -> (hidden) -> logits of all items.

    Args:
        num_items: I.
        hidden: width of the encoder's layer.
        code: outputs of the encoder; 2 latent where these are means and log-variances.
        latent: inputs of the decoder.
        decoder_hidden: widths of the decoder's layers; none for a linear decoder.
        activation: of hidden layers.
        layer_norm: whether hidden layers of the encoder are normalised.
        log_share: (I,) initial biases of the items: the log of the share of each item in all choices.
        generator: of initial weights.
    """

    def __init__(
        self,
        num_items: int,
        *,
        hidden: int,
        code: int,
        latent: int,
        decoder_hidden: Sequence[int],
        activation: str,
        layer_norm: bool,
        log_share: Tensor | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.bag = ItemBag(num_items, hidden, generator)
        self.norm = nn.LayerNorm(hidden) if layer_norm else None
        self.code = _linear(hidden, code, generator)
        widths = [latent, *decoder_hidden, num_items]
        self.decoder = nn.ModuleList(_linear(before, after, generator) for before, after in pairwise(widths))
        self._activation = ACTIVATIONS[activation]
        last = self.decoder[-1]
        if log_share is not None and isinstance(last, nn.Linear):
            with torch.no_grad():
                last.bias.copy_(log_share)

    def encoded(self, summed: Tensor) -> Tensor:
        """From outputs of the first layer (B, hidden) to codes (B, code)."""
        hidden = self._activation(summed if self.norm is None else self.norm(summed))
        code: Tensor = self.code(hidden)
        return code

    def forward(self, bag: Bag) -> Tensor:
        """The codes of a bag, (B, code)."""
        return self.encoded(self.bag(bag))

    def logits(self, z: Tensor, candidates: Candidates | None = None) -> Tensor:
        """Logits of all items (..., I), or corrected logits of candidates (..., C), for z (..., latent)."""
        for layer in self.decoder[:-1]:
            z = self._activation(layer(z))
        last = self.decoder[-1]
        assert isinstance(last, nn.Linear)
        if candidates is None:
            found: Tensor = last(z)
            return found
        columns = candidates.columns
        return F.linear(z, last.weight[columns], last.bias[columns] + candidates.correction)


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer with Glorot's initial weights."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.weight.normal_(0, (2 / (inputs + outputs)) ** 0.5, generator=generator)
        layer.bias.zero_()
    return layer
