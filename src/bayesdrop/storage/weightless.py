"""Construction without memory: large tensors have a shape and no values, and operations are counted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["TooLarge", "Weightless"]

#: new tensors up to this size have values: constructors may read those of small ones
_SMALL = 1 << 12
#: how much larger than its inputs a result may be and have values, as bytes that become doubles
_GROWTH = 8


class TooLarge(Exception):
    """A construction takes more memory or more operations than allowed."""


class Weightless(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which tensors that are made from a size alone are on the device "meta".

    Tensors that are computed from given values, as a list of rates, keep their values as long as they are not
    much larger, so that constructors can check them.

    Args:
        most_bytes: the most bytes that all tensors together would take.
        most_steps: the most operations on tensors.
    """

    def __init__(self, *, most_bytes: int, most_steps: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes_left = most_bytes
        self.steps_left = most_steps

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: constructors are not compiled, and True would import the compiler, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        self.steps_left -= 1
        if self.steps_left < 0:
            raise TooLarge("its construction takes far more steps than its tensors are")
        if not any("Tensor" in str(part.type) for part in func._schema.returns):
            return func(*args, **kwargs)  # a number or boolean, which needs values and takes no memory
        values, form = tree_flatten((args, kwargs))
        given = [value for value in values if isinstance(value, Tensor)]
        outlines = [_outline(value) if isinstance(value, Tensor) else value for value in values]
        meta_args, meta_kwargs = tree_unflatten(outlines, form)
        if any(part.name == "device" for part in func._schema.arguments):
            meta_kwargs["device"] = torch.device("meta")
        result = func(*meta_args, **meta_kwargs)
        known = {part.untyped_storage()._cdata for part in outlines if isinstance(part, Tensor)}
        made = [part for part in tree_flatten(result)[0] if isinstance(part, Tensor)]
        size = sum(part.nbytes for part in made if part.untyped_storage()._cdata not in known)
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise TooLarge("its tensors are far larger than those in the file")
        if any(value.is_meta for value in given):
            return result
        held = sum(value.untyped_storage().nbytes() for value in given)
        return func(*args, **kwargs) if size <= max(_SMALL, _GROWTH * held) else result


def _outline(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
