"""Models of which the code is known: made of torch's own layers and of ours alone.

Nothing has to be found out about them. Where none of their layers drops, keeps statistics or writes in place,
nothing has to be watched either: a pass inside a draw then costs what the pass costs.
"""

from __future__ import annotations

from torch import nn

from bayesdrop.draws.sites import StochasticModule, is_draws_hook

__all__ = ["is_chain", "needs_no_watching"]

_LAYERS = (
    nn.Sequential,
    nn.ModuleList,
    nn.Identity,
    nn.Linear,
    nn.Embedding,
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.dropout._DropoutNd,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)
#: layers that a draw must watch: they are random, or what they do depends on the training flag
_WATCHED = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase, nn.RReLU)


def is_chain(model: nn.Module) -> bool:
    """Whether rows are on axis 0 everywhere, whatever the model is given: known layers, known order."""
    for module in model.modules():
        kind = type(module)
        if isinstance(module, StochasticModule):
            continue
        activation = kind.__module__ == "torch.nn.modules.activation" and kind is not nn.MultiheadAttention
        flatten = isinstance(module, nn.Flatten) and module.start_dim >= 1
        layer = isinstance(module, _LAYERS) and kind.__module__.startswith("torch.nn.modules.")
        # Networks of ours say so themselves.
        ours = kind.__module__.startswith("bayesdrop.") and getattr(kind, "keeps_rows", False)
        if not (activation or flatten or layer or ours) or _is_changed(module):
            return False
    return True


def needs_no_watching(model: nn.Module) -> bool:
    """Whether a pass can neither be random, but in our own layers, nor change anything."""
    if nn.modules.module._has_any_global_hook() or not is_chain(model):  # type: ignore[no-untyped-call]
        return False
    for module in model.modules():
        if isinstance(module, StochasticModule) and not type(module).__module__.startswith("bayesdrop."):
            return False
        writes = getattr(module, "inplace", False) or getattr(module, "max_norm", None) is not None
        if writes or isinstance(module, _WATCHED) or _is_changed(module):
            return False
    return True


def _is_changed(module: nn.Module) -> bool:
    """Whether calling the module does more than its class says: hooks, a forward of its own, a compiler."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return (
        not all(map(is_draws_hook, hooks))
        or "forward" in vars(module)
        or module._compiled_call_impl is not None
    )
