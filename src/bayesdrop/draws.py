"""FunctionDraw: one sampled function, and the held noise behind it.

Noise inside a draw is keyed by (seed, draw, site): it depends on nothing else, so that a draw is the
same function in every call, for every batch, batch size and order of batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from bayesdrop.functional import keep_mask

__all__ = [
    "FunctionDraw",
    "HeldNoise",
    "RowDraw",
    "StochasticModule",
    "active_draw",
    "evaluating",
    "is_plain_dropout",
    "site_generator",
]

Sampler = Callable[[tuple[int, ...], torch.Generator], Tensor]


class StochasticModule(nn.Module):
    """A module that asks the active draw for its noise."""

    def is_random(self) -> bool:
        """Whether a draw of this module can differ from its mean."""
        return True


_CHANNEL_DROPOUT: dict[type[nn.Module], int] = {nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}
_PLAIN_DROPOUT: tuple[type[nn.Module], ...] = (
    nn.Dropout,
    *_CHANNEL_DROPOUT,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


def is_plain_dropout(module: nn.Module) -> bool:
    """True for torch's own dropout modules."""
    return isinstance(module, _PLAIN_DROPOUT)


def site_generator(seed: int, draw: int, site: str) -> torch.Generator:
    """The CPU generator of one site in one draw of one seed."""
    key = hashlib.blake2b(f"{seed}/{draw}/{site}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)


_ACTIVE: ContextVar[tuple[HeldNoise, ...]] = ContextVar("bayesdrop_active_draws", default=())


def active_draw(module: nn.Module) -> HeldNoise | None:
    """The innermost draw that holds noise for this module, if any."""
    for draw in reversed(_ACTIVE.get()):
        if draw.holds(module):
            return draw
    return None


class HeldNoise:
    """Noise that stays the same while this context is open. Use `FunctionDraw` or `RowDraw`."""

    #: whether every row has noise of its own
    per_row: bool

    def __init__(self, model: nn.Module, *, seed: int = 0, index: int = 0) -> None:
        self.model = model
        self.seed = seed
        self.index = index
        self._sites = {module: name for name, module in model.named_modules() if _is_site(module)}
        self._held: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._calls: dict[str, int] = {}
        self._exit: ExitStack | None = None

    def holds(self, module: nn.Module) -> bool:
        """Whether `module` is part of the model of this draw."""
        return module in self._sites

    def noise(
        self, module: nn.Module, name: str, shape: tuple[int, ...], like: Tensor, sample: Sampler
    ) -> Tensor:
        """The noise called `name` of `module`: sampled once, then held.

        Args:
            module: a module of the model.
            name: which of the module's noises.
            shape: of the noise.
            like: the result has its dtype and device.
            sample: makes noise on the CPU, so that a draw is the same function on every device.
        """
        site = f"{self._sites[module]}.{name}"
        held = self._held.get((site, shape))
        if held is None or held.dtype != like.dtype or held.device != like.device:
            held = sample(shape, self._generator(site)).to(device=like.device, dtype=like.dtype)
            self._held[site, shape] = held
        return held

    def _generator(self, site: str) -> torch.Generator:
        return site_generator(self.seed, self.index, site)

    def __enter__(self) -> Self:
        if self._exit is not None:
            raise RuntimeError(f"{type(self).__name__}: this draw is open already; make another one.")
        with ExitStack() as stack:
            token: Token[tuple[HeldNoise, ...]] = _ACTIVE.set((*_ACTIVE.get(), self))
            stack.callback(_ACTIVE.reset, token)
            plain = [module for module in self._sites if is_plain_dropout(module)]
            if plain:
                # A dropout module that is called twice in a pass is two sites: the calls are counted anew
                # in every pass of the whole model.
                restart = self.model.register_forward_pre_hook(lambda *_: self._calls.clear())
                stack.callback(restart.remove)
                stack.enter_context(evaluating(*plain))
            for module in plain:
                stack.callback(module.register_forward_hook(self._drop).remove)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._exit is not None:
            stack, self._exit = self._exit, None
            stack.close()

    def _drop(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        x: Tensor = args[0] if args else output
        path = self._sites[module]
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        p = torch.tensor(float(module.p))  # type: ignore[arg-type]
        shape = _plain_mask_shape(module, x, per_row=self.per_row)
        multiplier = self.noise(module, f"call{call}", shape, x, lambda s, g: keep_mask(p, s, g))
        if not isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout):
            return x * multiplier
        return _alpha_drop(x, multiplier != 0, float(p))


class FunctionDraw(HeldNoise):
    """One sampled function: inside `with`, every stochastic layer of `model` holds its noise.

        with FunctionDraw(model, seed=0, index=3):
            f = model(x)          # draw 3 of seed 0: the same function for every batch

    The noise is shared by all rows, whatever the training flags say. Nothing is left switched.

    Args:
        model: any module; its stochastic layers and `nn.Dropout*` modules become one function.
        seed: names a sequence of functions.
        index: which of them.
    """

    per_row = False


class RowDraw(HeldNoise):
    """Seeded noise that is fresh for every row: per-point moments as `FunctionDraw`, no joint function.

    Args:
        model: as in `FunctionDraw`.
        seed: names a sequence of samples.
        index: which of them.
        offset: number of the first row of the batch, so that batches have noise of their own.
    """

    per_row = True

    def __init__(self, model: nn.Module, *, seed: int = 0, index: int = 0, offset: int = 0) -> None:
        super().__init__(model, seed=seed, index=index)
        self.offset = offset

    def _generator(self, site: str) -> torch.Generator:
        return site_generator(self.seed, self.index, f"{site}@{self.offset}")


def _is_site(module: nn.Module) -> bool:
    return isinstance(module, StochasticModule) or is_plain_dropout(module)


def _plain_mask_shape(module: nn.Module, x: Tensor, *, per_row: bool) -> tuple[int, ...]:
    """Shape of a torch dropout module's mask: axis 0 are rows unless the input has no such axis."""
    shape = list(x.shape)
    batched = x.dim() > 1
    spatial = next((n for kind, n in _CHANNEL_DROPOUT.items() if isinstance(module, kind)), None)
    if spatial is not None:
        batched = x.dim() == spatial + 2
        channel = 1 if batched else 0
        shape[channel + 1 :] = [1] * len(shape[channel + 1 :])
    elif isinstance(module, nn.FeatureAlphaDropout):
        shape[2:] = [1] * len(shape[2:])
    if batched and not per_row:
        shape[0] = 1
    return tuple(shape)


def _alpha_drop(x: Tensor, keep: Tensor, p: float) -> Tensor:
    """Alpha dropout: dropped units take SELU's negative limit, then mean and variance are restored."""
    if p >= 1:
        return torch.zeros_like(x)
    limit = -1.7580993408473766
    scale = ((1 - p) * (1 + p * limit**2)) ** -0.5
    value: Tensor = torch.where(keep, x, limit) * scale - scale * limit * p
    return value


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """The given modules and all below them in eval mode; every training flag is restored on leaving."""
    flags = {child: child.training for module in modules for child in module.modules()}
    try:
        for child in flags:
            child.training = False
        yield
    finally:
        for child, flag in flags.items():
            child.training = flag
