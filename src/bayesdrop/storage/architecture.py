"""A model described in JSON: its classes, their options and their places; and the model built from that.

Only classes of the listed namespaces are built from a description. A description that is not trusted is
first built without memory (`outline`), to be compared with the tensors of its file.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop.randomness import ProcessSwitch, random_state_kept
from bayesdrop.storage.state import is_plain
from bayesdrop.storage.weightless import TooLarge, Weightless

__all__ = ["CannotDescribe", "build", "describe", "outline", "same_structure"]

#: where the classes of a description may come from; imported by name, as the last packages use this one
_NAMESPACES = (
    "torch.nn", "bayesdrop.layers", "bayesdrop.likelihoods", "bayesdrop.objectives", "bayesdrop.models",
)  # fmt: skip
_CONTAINERS = (nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict)
_MISSING = object()


class CannotDescribe(Exception):
    """A module has no description; the message says which part and why."""


def describe(model: nn.Module) -> dict[str, Any]:
    """A JSON description from which `build` makes the model.

    Each node holds the class, the constructor's options (read back from attributes of the same name), and
    the children that the constructor does not make by itself. A module that occurs a second time is a
    reference to its first place.
    """
    with _quiet_construction():
        node, _ = _described(model, "", {}, {})
    return node


def build(node: Any, tensors: int) -> nn.Module:
    """The model of a description, with the initial weights of its constructors.

    Args:
        node: a result of `describe`; raises for anything else.
        tensors: how many names of tensors the model has, which bounds its number of modules.
    """
    most = _most_modules(node, tensors)
    with _quiet_construction():
        return _built(node, "", _Built(most))


def outline(node: Any, tensors: int, size: int) -> nn.Module:
    """The model of a description with shapes and dtypes and no memory for its weights.

    Args:
        node: a result of `describe`; raises for anything else.
        tensors: how many names of tensors the model has.
        size: bytes that these tensors take.
    """
    most = _most_modules(node, tensors)
    _check_counts(node, max(_LARGEST_COUNT, size))
    # Constructors may make a tensor more than once, and in a wider dtype than it is stored in.
    limits = Weightless(most_bytes=16 * size + 2**20 * 16, most_steps=100 * most)
    with _quiet_construction(), limits:
        return _built(node, "", _Built(most))


@contextmanager
def _quiet_construction() -> Iterator[None]:
    """A context for constructors, whose random weights and repeated warnings are not wanted."""
    with random_state_kept(), _no_warnings:
        yield


def _ignore_warnings() -> Callable[[], Any]:
    stack = ExitStack()
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    return stack.close


# Filters of warnings belong to the whole process.
_no_warnings = ProcessSwitch(_ignore_warnings)


def same_structure(a: nn.Module, b: nn.Module) -> bool:
    """Whether two modules have the same classes, options, children and shapes of tensors."""
    if type(a) is not type(b) or list(a._modules) != list(b._modules):
        return False
    if _own_shapes(a) != _own_shapes(b):
        return False
    # Only attributes that the constructor sets are compared; users may have added others.
    for name, value in vars(b).items():
        if name != "training" and is_plain(value) and repr(value) != repr(getattr(a, name, _MISSING)):
            return False
    pairs = zip(a._modules.values(), b._modules.values(), strict=True)
    return all(x is y or (x is not None and y is not None and same_structure(x, y)) for x, y in pairs)


def _own_shapes(module: nn.Module) -> dict[str, Any]:
    own = {**module._parameters, **module._buffers}
    return {name: None if value is None else tuple(value.shape) for name, value in own.items()}


# from a module to its description


def _described(
    module: nn.Module, path: str, places: dict[nn.Module, str], made: dict[str, nn.Module]
) -> tuple[dict[str, Any], nn.Module]:
    """The node of a module and a copy made from it, which shows what the constructor does not make."""
    if module in places:
        first = places[module]
        return {"shared": first}, made[first]
    places[module] = path
    node: dict[str, Any] = {"class": _class_name(module, path)}
    options: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for name, value in _constructor_values(module).items():
        if isinstance(value, nn.Module):
            place = next((key for key, part in module.named_modules() if part is value), None)
            if place is None:
                raise CannotDescribe(f"`{name}` of {type(module).__name__} is not among its children")
            child, copy = _described(value, _join(path, place), places, made)
            options[name], arguments[name] = {"module": child, "place": place}, copy
        else:
            options[name] = _encoded(value, f"option `{name}` of {type(module).__name__}")
            arguments[name] = _decoded(options[name])
    if options:
        node["options"] = options
    shell = type(module)(**arguments)
    made[path] = shell
    children: dict[str, Any] = {}
    for name, part in module._modules.items():
        own, place = shell._modules.get(name), _join(path, name)
        if part is None or (own is not None and made.get(place) is own):
            continue
        if own is not None and part not in places and same_structure(part, own):
            for inner, module_within in part.named_modules():
                places.setdefault(module_within, _join(place, inner))
                made.setdefault(_join(place, inner), own.get_submodule(inner))
            continue
        children[name], copy = _described(part, place, places, made)
        _set_child(shell, name, copy)
    if children:
        node["children"] = children
    return node, shell


def _class_name(module: nn.Module, path: str) -> str:
    kind = type(module)
    for namespace in _NAMESPACES:
        if getattr(importlib.import_module(namespace), kind.__name__, None) is kind:
            return f"{namespace}.{kind.__name__}"
    where = f" (at {path!r})" if path else ""
    raise CannotDescribe(f"{kind.__name__}{where} is a class from outside torch.nn and bayesdrop")


def _constructor_values(module: nn.Module) -> dict[str, Any]:
    """Constructor arguments, from attributes of the same name or from a reader of the class."""
    if type(module) in _CONTAINERS:
        return {}
    for kind, read in _READERS.items():
        if type(module) is kind:
            return read(module)
    values = {}
    for name, parameter in inspect.signature(type(module)).parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if variadic or name in ("device", "dtype") or name.startswith("_"):
            continue
        value = getattr(module, name, _MISSING)
        if value is _MISSING and name.endswith("_init"):
            # The start of a quantity does not matter once its value is stored: the value gives its shape.
            value = getattr(module, name.removesuffix("_init"), _MISSING)
        if value is _MISSING and parameter.default is not parameter.empty:
            continue
        if value is _MISSING:
            raise CannotDescribe(f"{type(module).__name__} does not keep its argument `{name}`")
        if isinstance(parameter.default, bool) and (value is None or isinstance(value, Tensor)):
            value = value is not None  # `bias=True` is kept as the bias itself
        values[name] = value
    return values


def _encoded(value: Any, what: str) -> Any:
    if isinstance(value, Tensor):
        return value.item() if value.dim() == 0 else {"tensor": value.tolist()}
    if isinstance(value, tuple):
        return {"tuple": [_encoded(part, what) for part in value]}
    if isinstance(value, list):
        return [_encoded(part, what) for part in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: _encoded(part, what) for name, part in value.items()}}
    if is_plain(value):
        return value
    raise CannotDescribe(f"{what} is a {type(value).__name__}, which JSON cannot hold")


# from a description to a module


class _Built:
    """The modules built so far, those that are not finished, and how many paths lead into each.

    Args:
        most: paths that a module may have.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.places: dict[str, nn.Module] = {}
        self.unfinished: list[nn.Module] = []
        self.paths: dict[nn.Module, int] = {}

    def shared(self, place: str) -> nn.Module:
        """The module at a place."""
        if any(module is self.places[place] for module in self.unfinished):
            raise ValueError(f"the module at {place!r} contains itself")
        return self.places[place]

    def count(self, module: nn.Module) -> int:
        """How many paths there are within a module, itself included."""
        if module not in self.paths:
            parts = [part for part in module._modules.values() if part is not None]
            self.paths[module] = 1 + sum(self.count(part) for part in parts)
            if self.paths[module] > self.most:
                raise TooLarge("it has far more modules than the file has tensors")
        return self.paths[module]


def _most_modules(node: Any, tensors: int) -> int:
    """A bound on the number of modules, generous for real models; raise if a description exceeds it."""
    nodes, modules = _node_counts(node)
    most = 16 * (nodes + tensors) + 1000
    if modules > most:
        raise TooLarge("it has far more modules than the file has tensors")
    return most


def _node_counts(node: Any) -> tuple[int, int]:
    """Number of nodes of a description, and of modules, repeated as options say; raise for a wrong form."""
    if not isinstance(node, dict):
        raise ValueError(f"a module is described by {_kind(node)}")
    if "shared" in node:
        if not isinstance(node["shared"], str):
            raise ValueError(f"a shared module is named by {_kind(node['shared'])}")
        return 1, 1
    options, children = node.get("options", {}), node.get("children", {})
    if (
        not isinstance(node.get("class"), str)
        or not isinstance(options, dict)
        or not isinstance(children, dict)
    ):
        raise ValueError("a module has no class, options and children")
    within = []
    repeats = 1
    for name, value in options.items():
        if name.endswith("layers") and type(value) is int:
            repeats *= max(value, 1)
        if isinstance(value, dict) and "module" in value:
            if not isinstance(value.get("place"), str):
                raise ValueError(f"the place of `{name}` is {_kind(value.get('place'))}")
            within.append(_node_counts(value["module"]))
    rows = [_node_counts(child) for child in children.values()]
    nodes = 1 + sum(row[0] for row in (*within, *rows))
    return nodes, repeats * (1 + sum(row[1] for row in within)) + sum(row[1] for row in rows)


#: a count that takes no constructor long
_LARGEST_COUNT = 2**16


def _check_counts(node: Any, most: int) -> None:
    """Raise for counts far beyond the tensors: a list repeated 10^9 times would fill the memory."""
    waiting = [node]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int) and abs(value) > most:
            raise ValueError(f"a count of {value:.3g} is far larger than its tensors are")


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


def _built(node: dict[str, Any], path: str, made: _Built) -> nn.Module:
    if "shared" in node:
        return made.shared(node["shared"])
    kind = _resolved(node["class"])
    options: dict[str, Any] = {}
    for name, value in node.get("options", {}).items():
        if isinstance(value, dict) and "module" in value:
            options[name] = _built(value["module"], _join(path, value["place"]), made)
        else:
            options[name] = _decoded(value)
    module = kind(**options)
    made.places[path] = module
    made.unfinished.append(module)
    for name, child in node.get("children", {}).items():
        _set_child(module, name, _built(child, _join(path, name), made))
    made.unfinished.pop()
    made.count(module)
    for name, part in module.named_modules():
        made.places.setdefault(_join(path, name), part)
    return module


def _resolved(name: str) -> type[nn.Module]:
    namespace, _, short = name.rpartition(".")
    kind = getattr(importlib.import_module(namespace), short, None) if namespace in _NAMESPACES else None
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise CannotDescribe(f"it names {name!r}, which is not a module of {', '.join(_NAMESPACES)}")
    return kind


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return torch.tensor(value["tensor"])
    if "tuple" in value:
        return tuple(_decoded(part) for part in value["tuple"])
    return {name: _decoded(part) for name, part in value["dict"].items()}


def _set_child(module: nn.Module, name: str, child: nn.Module) -> None:
    if name in module._modules:
        module._modules[name] = child
    else:
        module.add_module(name, child)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


# classes of torch.nn that do not keep their arguments under the arguments' names


def _attributes(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda module: {name: getattr(module, name) for name in names}


_RECURRENT = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")


def _attention(module: nn.MultiheadAttention) -> dict[str, Any]:
    kept = _attributes("embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim", "batch_first")
    return {
        **kept(module),
        "bias": module.in_proj_bias is not None,
        "add_bias_kv": module.bias_k is not None,
    }


def _transformer_layer(module: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> dict[str, Any]:
    # A weight layer may have been wrapped in a stochastic layer since; its sizes are then the inner ones.
    first: Any = getattr(module.linear1, "layer", module.linear1)
    names = {F.relu: "relu", F.gelu: "gelu"}
    activation = module.activation
    return {
        "d_model": module.self_attn.embed_dim,
        "nhead": module.self_attn.num_heads,
        "dim_feedforward": first.out_features,
        "dropout": getattr(module.dropout, "p", 0.0),
        "activation": activation if isinstance(activation, nn.Module) else names.get(activation, activation),
        "layer_norm_eps": module.norm1.eps,
        "batch_first": module.self_attn.batch_first,
        "norm_first": module.norm_first,
        "bias": first.bias is not None,
    }


def _transformer_encoder(module: nn.TransformerEncoder) -> dict[str, Any]:
    kept = _attributes("num_layers", "norm", "enable_nested_tensor", "mask_check")
    return {"encoder_layer": module.layers[0], **kept(module)}


def _transformer_decoder(module: nn.TransformerDecoder) -> dict[str, Any]:
    return {"decoder_layer": module.layers[0], "num_layers": module.num_layers, "norm": module.norm}


_READERS: dict[type[nn.Module], Callable[[Any], dict[str, Any]]] = {
    nn.RNN: _attributes(*_RECURRENT, "nonlinearity"),
    nn.GRU: _attributes(*_RECURRENT),
    nn.LSTM: _attributes(*_RECURRENT, "proj_size"),
    nn.MultiheadAttention: _attention,
    nn.TransformerEncoderLayer: _transformer_layer,
    nn.TransformerDecoderLayer: _transformer_layer,
    nn.TransformerEncoder: _transformer_encoder,
    nn.TransformerDecoder: _transformer_decoder,
}
