"""Losses of models with learned masks, with unbiased estimates of the gradient in the rates."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_module
from bayesdrop.functional.arm import Estimator, check_passes, is_antithetic, rate_gradient
from bayesdrop.layers.learnable import LearnableDropout
from bayesdrop.layers.mask_pass import LearnedMask, MaskPass
from bayesdrop.objectives.replay import Prefix, buffers_kept

__all__ = ["RowsMeet", "arm_loss", "learns_masks"]

LossPerExample = Callable[[Any], Tensor]
_LOSSES = "a function that gives the loss of every row, shape (N,)"
# Models for which there was a warning already.
_WARNED: weakref.WeakSet[nn.Module] = weakref.WeakSet()


class RowsMeet(UserWarning):
    """Rows depend on each other after the learned masks, which makes gradients of the rates noisier."""


def learns_masks(model: nn.Module) -> bool:
    """Whether a training step of this model must estimate gradients of learned masks."""
    return torch.is_grad_enabled() and any(
        isinstance(layer, LearnableDropout) and layer.training and layer.logit_p.requires_grad
        for layer in model.modules()
    )


def arm_loss(
    model: nn.Module,
    loss_per_example: LossPerExample,
    *,
    estimator: Estimator = "disarm",
    num_passes: int | None = None,
) -> Tensor:
    """The mean loss; its gradient is unbiased in the weights and in the rates of `LearnableDropout`.

        d/da E_z [ (1/N) sum_i L_i(z_i) ]       estimated from L_i at the masks and at their mirror images

    The masks of all layers are independent given their rates, so that two passes are enough for all layers
    together. The second pass builds no graph, starts at the first learned mask, has all other noise in common
    with the first and does not change BatchNorm's statistics.

    Args:
        model: in `train()` mode; without learned masks, or in `eval()` mode, it is run once.
        loss_per_example: from the model to the losses of the rows, shape (N,), neither averaged nor
            summed: `lambda model: F.cross_entropy(model(x), y, reduction="none")`. Called once a pass.
        estimator: "disarm" (two passes, lowest variance), "arm" (two), "loo" (two or more independent
            passes) or "reinforce" (one).
        num_passes: for "loo", how many passes.

    The gradient of a row's mask is estimated from that row's loss. Where rows depend on each other after a
    learned mask (BatchNorm in training mode), that would be wrong, as a row's mask changes the losses of
    other
    rows: for all masks before the last BatchNorm the loss of the whole batch is used. That is still unbiased,
    but its variance grows with the batch; `RowsMeet` warns of it, once a model. Masks after the last
    BatchNorm use the losses of their rows, and so do all masks if BatchNorm is in eval mode or frozen, see
    `bayesdrop.layers.freeze_batch_norm`. A mask whose rows are not those of the loss also uses the whole
    loss.

    Returns: shape (); its value is the mean loss of the first pass.
    Reference: Boluki et al. (2020), section 2.3.

    >>> from bayesdrop import LearnableDropout
    >>> net = nn.Sequential(LearnableDropout(nn.Linear(3, 1)))
    >>> x, y = torch.ones(5, 3), torch.zeros(5, 1)
    >>> loss = arm_loss(net, lambda model: (model(x) - y).square().sum(1))
    >>> loss.backward()
    >>> net[0].logit_p.grad.shape
    torch.Size([3])
    """
    must_be_module("arm_loss", "model", model)
    if not callable(loss_per_example):
        raise TypeError(must("arm_loss", "loss_per_example", _LOSSES, loss_per_example))
    passes = check_passes("arm_loss", estimator, num_passes)
    if not learns_masks(model):
        return _checked_losses(loss_per_example(model)).mean()
    masks: list[LearnedMask] = []
    prefix = Prefix(masks)
    first = MaskPass(on_first=prefix.end, masks=masks)
    with prefix, first.running():
        losses = _checked_losses(loss_per_example(model))
    if not first.masks:
        return losses.mean()
    all_losses, all_masks = [losses.detach()], [first.masks]
    plain = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    with torch.no_grad(), _random_state_of_first_pass(), buffers_kept(plain):
        for _ in range(passes - 1):
            mirrored = first.masks if is_antithetic(estimator) else None
            other = MaskPass(mirrored=mirrored, on_first=prefix.end)
            all_losses.append(_again(prefix, other, loss_per_example, plain))
            all_masks.append(other.masks)
    if prefix.num_coupled:
        _warn_rows_meet(plain, first.masks[: prefix.num_coupled])
    surrogate = _surrogate(estimator, all_losses, all_masks, prefix.num_coupled)
    return losses.mean() + surrogate


def _warn_rows_meet(model: nn.Module, masks: list[LearnedMask]) -> None:
    """Warn, once a model, that rows depend on each other after these masks."""
    if model in _WARNED:
        return
    _WARNED.add(model)
    logits = {id(mask.parameter) for mask in masks}
    layers = ((name, part) for name, part in model.named_modules() if isinstance(part, LearnableDropout))
    paths = [name or "the model itself" for name, part in layers if id(part.logit_p) in logits]
    named = ", ".join(map(repr, paths[:4])) + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")
    message = (
        f"arm_loss: BatchNorm in training mode mixes rows after the learned masks of {named}: the gradient "
        "of their rates is unbiased, but of a variance that grows with the batch. "
        "bayesdrop.layers.freeze_batch_norm(model), once its statistics are good, keeps rows apart."
    )
    warnings.warn(message, RowsMeet, stacklevel=4)


def _again(prefix: Prefix, masks: MaskPass, loss_per_example: LossPerExample, model: nn.Module) -> Tensor:
    """One more pass, of the same shape as the first."""

    def run() -> Tensor:
        # A replay that was broken off may have made masks already.
        masks.masks.clear()
        return _checked_losses(loss_per_example(model))

    with masks.running():
        return prefix.again(run)


def _surrogate(
    estimator: Estimator, losses: list[Tensor], passes: list[list[LearnedMask]], num_coupled: int
) -> Tensor:
    """A zero whose gradient in the logits is the estimate, for the mean over rows.

    Args:
        estimator: its name.
        losses: of the rows, in every pass.
        passes: the masks of every pass.
        num_coupled: for how many of the first masks rows depend on each other later.
    """
    num_rows = losses[0].shape[0]
    terms = []
    for place, uses in enumerate(zip(*passes, strict=True)):
        parameter, p, mask = uses[0].parameter, uses[0].p, uses[0].used.mask
        own_rows = mask.dim() > p.dim() and mask.shape[0] == num_rows and place >= num_coupled
        values = [loss / num_rows if own_rows else loss.mean() for loss in losses]
        used = [use.used for use in uses]
        gradient = rate_gradient(estimator, values, used, p, inverted=uses[0].inverted)
        terms.append((parameter * gradient.reshape(parameter.shape)).sum())
    total = torch.stack(terms).sum()
    return total - total.detach()


def _checked_losses(losses: Any) -> Tensor:
    if not isinstance(losses, Tensor):
        raise TypeError(must("arm_loss", "loss_per_example", _LOSSES, losses))
    if losses.dim() != 1:
        hint = "Use reduction='none'; sum what belongs to one row."
        got = "one that is averaged or summed over rows" if losses.dim() == 0 else tuple(losses.shape)
        raise ValueError(must("arm_loss", "loss_per_example", _LOSSES, got, hint))
    return losses


@contextmanager
def _random_state_of_first_pass() -> Iterator[None]:
    """A context: torch's generator is put back to its state after the first pass."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
