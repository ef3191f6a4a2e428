"""History: the course of training, epoch by epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from bayesdrop.errors import must, require

__all__ = ["History"]


@dataclass(frozen=True, repr=False)
class History:
    """The course of training, one entry an epoch. Made by `bayesdrop.fit`.

    Attributes:
        loss: the objective, averaged over the rows.
        nll: its part -log p(y | f(x)), if the objective has a term `nll`.
        kl: its part KL / num_data, if the objective has a term `kl`.
        validation: with a likelihood, minus the mean log predictive density of the validation set, in
            nats; else the objective in eval mode. Empty without a validation set.
        score: the values of `score`. Empty without one.
        noise_std: of a likelihood with constant noise, as `Gaussian`: one number, or one per output.
        rates: from paths of layers to their drop rates, averaged over units: of layers that learn their rate,
            and with `p_schedule` of all stochastic layers.
        lr: learning rate of the weights at the end of the epoch.
        seconds: how long the epoch took, validation included.
        best_epoch: the epoch, counted from 1, with the highest score, or else the lowest validation loss
            (by `min_delta`); or None.
        stopped_early: whether `patience` ran out.
        stopped_by: what ended training before its last epoch: "patience", "callback" or "time"; None if
            nothing did. When time ran out within an epoch, the last entries are those of its steps so far.
    """

    loss: list[float] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    noise_std: list[float | list[float]] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=dict)
    lr: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best_epoch: int | None = None
    stopped_early: bool = False
    stopped_by: str | None = None

    def __len__(self) -> int:
        """Number of epochs."""
        return len(self.loss)

    def __repr__(self) -> str:
        parts = [f"{len(self)} epochs"]
        if self.loss:
            parts.append(f"loss {self.loss[0]:.4g} to {self.loss[-1]:.4g}")
        if self.best_epoch is not None:
            parts.append(f"best epoch {self.best_epoch}")
        if self.stopped_early:
            parts.append("stopped early")
        elif self.stopped_by is not None:
            parts.append(f"stopped by {self.stopped_by}")
        return f"History({', '.join(parts)})"

    def to_dict(self) -> dict[str, Any]:
        """All entries in a form that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> History:
        """The inverse of `to_dict`.

        >>> History.from_dict(History(loss=[2.0, 1.0]).to_dict())
        History(2 epochs, loss 2 to 1)
        """
        known = {part.name for part in fields(cls)}
        if not set(values) <= known:
            raise ValueError(
                must("History.from_dict", "values", "fields of History", sorted(set(values) - known))
            )
        return cls(**values)

    def plot(self, ax: Any = None) -> Any:
        """Training and validation loss by epoch (needs the extra "plot").

        Args:
            ax: matplotlib axes to draw on; new ones if None.

        Returns: the axes.
        """
        if ax is None:
            ax = require("matplotlib.pyplot", extra="plot", owner="History.plot").subplots()[1]
        epochs = range(1, len(self) + 1)
        ax.plot(epochs, self.loss, label="training loss")
        if self.validation:
            ax.plot(epochs, self.validation, label="validation loss")
        if self.best_epoch is not None:
            ax.axvline(self.best_epoch, color="0.5", linestyle=":", label=f"best epoch, {self.best_epoch}")
        ax.set_xlabel("epoch")
        ax.set_ylabel("nats per data point" if self.nll else "loss")
        ax.legend()
        return ax
