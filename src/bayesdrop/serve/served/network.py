"""ServedNetwork: a module of torch with draws that are held, for batches of a few sizes."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.inputs import num_rows
from bayesdrop.likelihoods import Likelihood
from bayesdrop.predict import Prediction, compile, predict
from bayesdrop.predict.statistics import DrawStatistics
from bayesdrop.serve.served.answers import Ask
from bayesdrop.serve.served.base import Ready

__all__ = ["ServedNetwork", "digest_of"]


class ServedNetwork:
    """A model that is asked again and again.

    Batches are filled up to a power of two, so that a compiled model meets a few shapes only. A model that
    cannot be compiled is predicted with as it is.

    Args:
        model: with something random in it.
        likelihood: what its outputs mean; None for raw outputs.
    """

    def __init__(self, model: nn.Module, likelihood: Likelihood | None) -> None:
        self.model, self.likelihood = model.eval(), likelihood
        self._ready: Ready[Any] = Ready()

    def __call__(self, x: Any, ask: Ask, *, at_once: bool = False) -> Prediction:
        """The predictive distribution of rows.

        Args:
            x: a tensor, or a mapping of tensors.
            ask: draws.
            at_once: hold these draws from the first time on.
        """
        rows = num_rows(x, "serve")
        size = 1 << (rows - 1).bit_length()
        if size > rows:
            places = torch.arange(size).clamp_max(rows - 1)
            x = {name: value[places] for name, value in x.items()} if isinstance(x, dict) else x[places]
        asked: dict[str, Any] = {"num_draws": ask.num_draws, "seed": ask.seed, "likelihood": self.likelihood}

        def make() -> Any:
            try:
                return compile(self.model, x, **asked).draws
            except ValueError:
                # As it is: its control flow depends on values, or it cannot be copied.
                return once

        def once(batch: Any) -> Tensor:
            return predict(self.model, batch, keep_draws=True, **asked).draws

        held = self._ready.get((ask.num_draws, ask.seed), make, at_once=at_once)
        with torch.no_grad():
            draws = (once if held is None else held)(x)[:, :rows].cpu()
            running = DrawStatistics(self.likelihood)
            running.update_many(draws)
        return Prediction.from_statistics(
            running.result(), self.likelihood, shared=True, plan="served", draws=draws
        )


def digest_of(model: nn.Module, *about: str) -> str:
    """SHA-256 of a model's tensors with their names, and of texts about it."""
    found = sha256("\0".join(about).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            whole = tensor.detach().cpu().contiguous().reshape(-1)
            found.update(whole.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
