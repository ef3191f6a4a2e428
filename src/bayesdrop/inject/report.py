"""What `inject` chose, and what it measured."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

__all__ = ["Injection", "TriedNoise"]

_WARNING = (
    "This is a spread {origin}, not a posterior that was trained: the network never learned with this noise."
)


@dataclass(frozen=True)
class TriedNoise:
    """One strength of the noise that was tried.

    Attributes:
        p: chance of dropping.
        scale: of the noise, see `ScaledDropout`; 1 is plain dropout.
        log_likelihood: of the targets, in nats per point; None where there are none.
        quality: accuracy or RMSE of the mean prediction; None where there are no targets, or neither applies.
        information: that predictions have about their rows, in nats; None where it was not computed.
        allowed: whether `tolerance`, or `bound`, lets it pass.
    """

    p: float
    scale: float
    log_likelihood: float | None
    quality: float | None
    information: float | None
    allowed: bool


@dataclass(frozen=True, eq=False)
class Injection:
    """A network that was given noise after its training, and what its noise was chosen by. `print` it.

    Attributes:
        model: the copy with noise, for `predict`, `save`, `convert`.
        paths: where the noise is.
        kind: of noise.
        p: chance of dropping.
        scale: of the noise; 1 is plain dropout.
        target: "likelihood", "information", or "given" where `p` was.
        num_rows: held-out rows; 0 where there were none.
        num_draws: draws of every measurement.
        before: log-likelihood of the held-out targets without noise, in nats per point; None without targets.
        after: the same with noise. Where the noise was chosen by it, each half of the points is scored with
            the noise that the other half chooses, so that `after` is not flattered by the choice.
        standard_error: of `after - before`, over points.
        metric: "accuracy", "rmse", or None where neither was measured.
        quality_before: of the network's own prediction.
        quality_after: of the mean prediction with noise.
        information_before: that predictions have about their rows, in nats; None unless it was the target.
        information_after: the same with noise.
        candidates: all that was tried, in order.
    """

    model: nn.Module
    paths: tuple[str, ...]
    kind: str
    p: float
    scale: float
    target: str
    num_rows: int
    num_draws: int
    before: float | None = None
    after: float | None = None
    standard_error: float | None = None
    metric: str | None = None
    quality_before: float | None = None
    quality_after: float | None = None
    information_before: float | None = None
    information_after: float | None = None
    candidates: tuple[TriedNoise, ...] = ()

    @property
    def improves(self) -> bool | None:
        """Whether the held-out log-likelihood is higher with noise; None where it was not measured."""
        return None if self.before is None or self.after is None else self.after > self.before

    def __str__(self) -> str:
        scale = "" if self.scale == 1 else f", scale {self.scale:g}"
        where = ", ".join(path or "the model itself" for path in self.paths)
        lines = [f"{self.kind} noise of p = {self.p:.4g}{scale} before {where}"]
        rows = f"{self.num_rows} held-out rows"
        if self.before is not None and self.after is not None:
            error = f" +- {self.standard_error:.2g}" if self.standard_error is not None else ""
            gain = self.after - self.before
            lines.append(
                f"log-likelihood of {rows}: {self.before:.4f} before, {self.after:.4f} after "
                f"({gain:+.2g}{error} nats)"
            )
            if self.improves is False:
                lines.append("No noise that was tried makes these rows likelier: the spread says little.")
        if self.metric is not None:
            assert self.quality_before is not None
            assert self.quality_after is not None
            lines.append(f"{self.metric}: {self.quality_before:.4f} before, {self.quality_after:.4f} after")
        if self.information_before is not None and self.information_after is not None:
            lost = 1 - self.information_after / self.information_before
            lines.append(
                f"information of predictions about their rows: {self.information_before:.4f} nats before, "
                f"{self.information_after:.4f} after ({100 * lost:.1f} % lost)"
            )
        origin = "whose rate was given" if self.target == "given" else f"that was fitted to {rows}"
        return "\n".join([*lines, _WARNING.format(origin=origin)])

    def __repr__(self) -> str:
        return f"Injection({self.kind}, p={self.p:.4g}, scale={self.scale:g}, at {list(self.paths)})"
