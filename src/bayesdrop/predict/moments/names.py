"""What an operation on a tape is called, and whether it writes into its argument."""

from __future__ import annotations

from bayesdrop.predict.tape import Op

__all__ = ["canonical", "writes"]

_IN_PLACE = frozenset({"iadd", "isub", "imul", "idiv", "itruediv", "ipow"})


def canonical(op: Op) -> str:
    """What an operation does, however it is spelt: add, add_, __add__ and __iadd__ are one."""
    name = op.name
    if name == "__get__":
        return str(getattr(getattr(op.func, "__self__", None), "__name__", name))
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        return name[1:] if name in _IN_PLACE else name
    return name.removesuffix("_")


def writes(op: Op, activations: frozenset[str]) -> bool:
    """Whether an operation changes its argument.

    Args:
        op: the operation.
        activations: names of functions with an argument `inplace`.
    """
    name = op.name
    if name.startswith("__"):
        return name[2:-2] in _IN_PLACE
    flags = (op.kwargs.get("inplace"), *(value for value in op.args if isinstance(value, bool)))
    return name.endswith("_") or (name in activations and any(flags))
