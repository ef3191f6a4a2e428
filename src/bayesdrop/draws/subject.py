"""The model of a call, as passes get it: a private copy each, so that the model itself is never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn

from bayesdrop.draws.claims import OPEN, RUNNING
from bayesdrop.draws.passes import may_keep_tensors
from bayesdrop.draws.private import NotPrivate, PrivateCopy, copied_arguments, leads_back

if TYPE_CHECKING:
    from bayesdrop.draws.held import HeldNoise

__all__ = ["Subject"]

_Draw = TypeVar("_Draw", bound="HeldNoise")


class Subject:
    """Runs passes of a model and leaves it alone.

    Each pass gets a private copy, whose flags and attributes are its own. Where no copy can stand for the
    model (a part of it is a script, or a closure leads back to it), passes are made in the model itself,
    one thread after the other, and everything is put back.

    Args:
        model: any module.

    Attributes:
        shared: why passes are made in the model itself; None if they are not.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.shared: str | None = None
        self._looked = False

    def run(
        self,
        draw_of: Callable[[nn.Module], _Draw],
        inputs: tuple[Any, Any],
        pick: Callable[[Any], Any] | None = None,
    ) -> tuple[_Draw, Any]:
        """One pass inside a draw.

        Args:
            draw_of: from the module that the pass gets to the draw that holds its noise.
            inputs: what the model is called with, positional and keyword arguments. Objects among them (a
                cache) are copied, so that each pass finds them as they were.

            pick: what to take of the output, inside the draw.

        Returns: the draw, which is closed, and the output.
        """
        while True:
            args, kwargs = copied_arguments(inputs, tensors=False)
            with self._lent() as (module, tensors, originals):
                draw = draw_of(module)
                draw.watch_over(tensors, originals)
                try:
                    with draw:
                        output = module(*args, **kwargs)
                        output = output if pick is None else pick(output)
                except Exception:
                    if not draw.escaped:
                        raise
                else:
                    if not draw.escaped:
                        return draw, output
            # A module of the model itself ran in the place of its copy: nothing of this pass counts.
            self.shared = "its code leads to its modules by a way of its own"

    @contextmanager
    def _lent(self) -> Iterator[tuple[nn.Module, list[Tensor], dict[nn.Module, nn.Module]]]:
        # What a pass writes to a tensor is put back at its end: no other pass may see it.
        writers = [module for module in self.model.modules() if may_keep_tensors(module)]
        with RUNNING.claimed(writers):
            # Another copy for every pass, as a pass may change it.
            copy = None if self.shared is not None else self._copied()
            if copy is not None:
                yield copy.module, copy.tensors, copy.copies
                return
        with OPEN.claimed(self.model.modules()), RUNNING.claimed(writers):
            yield self.model, [], {}

    def _copied(self) -> PrivateCopy | None:
        try:
            copy = PrivateCopy(self.model)
        except NotPrivate as error:
            self.shared = str(error)
            return None
        if not self._looked:
            self._looked = True
            self.shared = leads_back(copy)
        return copy if self.shared is None else None
