"""A fitted estimator in one safetensors file."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.likelihoods import Warp
from bayesdrop.stacked.encode import Encoder
from bayesdrop.stacked.heads import LOGITS, outputs_for
from bayesdrop.stacked.job import Trained
from bayesdrop.stacked.mixture import Component, Mixture
from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.table import TargetScale
from bayesdrop.storage import is_count, is_plain, read_tensors, write_tensors

__all__ = ["read_estimator", "write_estimator"]

_KIND = "bayesdrop-estimator"
_E = TypeVar("_E")


def write_estimator(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write networks, encoders and scales as tensors; options and names as JSON."""
    mixture: Mixture = estimator.mixture_
    tensors: dict[str, Tensor] = {}
    components: list[dict[str, Any]] = []
    for place, component in enumerate(mixture.components):
        network = component.network
        for layer, (weight, bias, p) in enumerate(
            zip(network.weights, network.biases, network.p, strict=True)
        ):
            tensors |= {f"{place}.{layer}.weight": weight, f"{place}.{layer}.bias": bias}
            tensors[f"{place}.{layer}.p"] = p
            for name, widths in (("std", network.stds), ("bias_std", network.bias_stds)):
                if widths and (width := widths[layer]) is not None:
                    tensors[f"{place}.{layer}.{name}"] = width
        if network.log_noise_std is not None:
            tensors[f"{place}.log_noise_std"] = network.log_noise_std
        components.append(
            {
                "settings": network.settings.as_dict(),
                "seed": network.seed,
                "widths": list(network.widths),
                "num_data": network.num_data,
                "encoder": component.encoder,
            }
        )
    for own, encoder in mixture.encoders.items():
        tensors |= {f"encoder.{own}.{name}": torch.from_numpy(a) for name, a in encoder.as_dict().items()}
    if mixture.target is not None:
        tensors["target.mean"] = torch.from_numpy(mixture.target.mean)
        tensors["target.scale"] = torch.from_numpy(mixture.target.scale)
        for name, end in (("low", mixture.target.low), ("high", mixture.target.high)):
            if end is not None:
                tensors[f"target.{name}"] = torch.from_numpy(end)
        if mixture.shares is not None:
            tensors["shares"] = torch.from_numpy(mixture.shares)
    classes = getattr(estimator, "classes_", None)
    names = getattr(estimator, "feature_names_in_", None)
    header = {
        "class": type(estimator).__name__,
        "options": {name: v for name, v in estimator.get_params().items() if is_plain(v)},
        "components": components,
        "num_draws": mixture.num_draws,
        "dof": None if math.isinf(mixture.dof) else mixture.dof,
        "warp": None if mixture.target is None else mixture.target.warp.as_dict(),
        "search": list(mixture.search),
        "columns": int(estimator.n_features_in_),
        "column_names": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else classes.tolist(),
        "classes_kind": None if classes is None else classes.dtype.kind,
        "one_target": bool(getattr(estimator, "_one_target", False)),
    }
    write_tensors(path, tensors, kind=_KIND, header=header, owner=f"{type(estimator).__name__}.save")


def read_estimator(kind: type[_E], path: str | os.PathLike[str]) -> _E:
    """The estimator from a file, which must hold one of class `kind`."""
    owner = f"{kind.__name__}.load"
    tensors, header = read_tensors(path, kind=_KIND, owner=owner)
    if header.get("class") != kind.__name__:
        found = header.get("class")
        raise ValueError(
            must(owner, "path", f"a file of a {kind.__name__}", f"{os.fspath(path)}, of a {found}")
        )
    try:
        return _rebuilt(kind, tensors, header)
    except Exception as error:
        raise ValueError(f"{owner}: the description in {os.fspath(path)} is damaged ({error}).") from error


def _rebuilt(kind: type[_E], stored: dict[str, Tensor], header: dict[str, Any]) -> _E:
    tensors = dict(stored)  # each is taken out when it is used: what is left at the end does not belong there
    columns = header["columns"]
    components = [_component(place, row, tensors) for place, row in enumerate(header["components"])]
    _check("components", bool(components) and is_count(columns))
    encoders = {
        name: _encoder(name, columns, tensors)
        for name in sorted({component.encoder for component in components})
    }
    target = None
    if "target.mean" in tensors:
        mean, scale = tensors.pop("target.mean"), tensors.pop("target.scale")
        _check("target", mean.dim() == 1 and mean.shape == scale.shape)
        # Files of earlier versions have no "warp".
        warp = Warp.from_dict(header.get("warp") or {})
        _check("warp", warp.is_plain or len(mean) == 1)
        # Nor have they the range of the targets.
        ends = {name: tensors.pop(f"target.{name}", None) for name in ("low", "high")}
        low, high = (None if end is None else _array(end) for end in ends.values())
        target = TargetScale(_array(mean), _array(scale), warp, low, high)
        _check("target", (low is None) == (high is None))
        if low is not None and high is not None:
            _check("target", low.shape == high.shape == target.mean.shape and bool((low <= high).all()))
    shares = None
    if "shares" in tensors:
        shares = _array(tensors.pop("shares"))
        sound = target is not None and shares.ndim == 2 and shares.shape[1] == len(target.mean)
        _check("shares", sound and bool(((shares >= 0) & (shares <= 1)).all()))
    _check("tensors", not tensors)
    classes = header["classes"]
    _check("classes", (classes is None) == (target is not None) and isinstance(classes, list | None))
    outputs = len(classes) if target is None else len(target.mean)
    for component in components:
        network = component.network
        settings, widths = network.settings, network.widths
        _check("inputs", widths[0] == encoders[component.encoder].width)
        _check("outputs", widths[-1] == outputs_for(settings.noise, outputs))
        _check("noise", (settings.noise in LOGITS) == (target is None))
        _check("noise", (settings.noise == "labels") == (components[0].network.settings.noise == "labels"))
        gaussian = settings.noise in ("fixed", "map", "learned")
        _check("log_noise_std", (network.log_noise_std is not None) == gaussian)
        _check("log_noise_std", network.log_noise_std is None or network.log_noise_std.shape == (outputs,))
    dof, search, names = header["dof"], header["search"], header["column_names"]
    _check("num_draws", is_count(header["num_draws"]) and header["num_draws"] > 0)
    _check("dof", dof is None or (isinstance(dof, int | float) and 0 < dof < math.inf))
    _check("search", isinstance(search, list) and all(isinstance(row, dict) for row in search))
    _check(
        "column_names", names is None or (len(names) == columns and all(isinstance(n, str) for n in names))
    )
    _check("one_target", isinstance(header["one_target"], bool))
    estimator: Any = kind(**header["options"])
    estimator.mixture_ = Mixture(
        components=tuple(components),
        encoders=encoders,
        target=target,
        num_draws=header["num_draws"],
        dof=math.inf if dof is None else float(dof),
        search=tuple(search),
        shares=shares,
    )
    estimator.n_features_in_ = columns
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    if classes is not None:
        estimator.classes_ = np.asarray(classes, dtype=object if header["classes_kind"] == "O" else None)
        _check(
            "classes",
            estimator.classes_.ndim == 1 and estimator.classes_.dtype.kind == header["classes_kind"],
        )
        estimator.multilabel_ = components[0].network.settings.noise == "labels"
    if target is not None:
        estimator._one_target = header["one_target"]
        estimator._num_targets = len(target.mean)
    return estimator


def _component(place: int, row: dict[str, Any], tensors: dict[str, Tensor]) -> Component:
    """Network `place` of a mixture; its tensors are taken out of `tensors`."""
    settings = Settings(**{**row["settings"], "p": _rate(row["settings"]["p"])})
    _check("settings", settings.as_dict() == row["settings"])
    widths = row["widths"]
    _check("widths", all(map(is_count, widths)) and tuple(widths[1:-1]) == settings.hidden)
    _check("numbers", all(is_count(row[name]) for name in ("seed", "num_data")))
    # In files of earlier versions, encoders had no names but their numbers of bins.
    encoder = row["encoder"] if "encoder" in row else f"{row['bins']} bins"
    _check("encoder", isinstance(encoder, str))
    layers = list(pairwise(widths))
    network = Trained(
        settings=settings,
        seed=row["seed"],
        name="",
        widths=tuple(widths),
        weights=[tensors.pop(f"{place}.{layer}.weight") for layer in range(len(layers))],
        biases=[tensors.pop(f"{place}.{layer}.bias") for layer in range(len(layers))],
        p=[tensors.pop(f"{place}.{layer}.p") for layer in range(len(layers))],
        log_noise_std=tensors.pop(f"{place}.log_noise_std", None),
        num_data=row["num_data"],
        stds=_widths(settings, place, "std", tensors),
        bias_stds=_widths(settings, place, "bias_std", tensors),
    )
    for (before, after), weight, bias, p in zip(
        layers, network.weights, network.biases, network.p, strict=True
    ):
        _check("weights", weight.shape == (before, after) and bias.shape == (after,))
        _check("rates", p.shape in ((), (before,)))
        _check("dtypes", all(part.is_floating_point() for part in (weight, bias, p)))
    for widths, means in ((network.stds, network.weights), (network.bias_stds, network.biases)):
        for width, mean in zip(widths, means, strict=False):
            shape = () if settings.method == "mixture" else mean.shape
            _check("widths of weights", width is None or (width.shape, width.dtype) == (shape, mean.dtype))
    return Component(network, encoder)


def _widths(settings: Settings, place: int, name: str, tensors: dict[str, Tensor]) -> list[Tensor | None]:
    """Widths of Gaussian weights, layer by layer; None for a layer without noise."""
    if not settings.has_widths:
        return []
    return [
        tensors.pop(f"{place}.{layer}.{name}") if rate > 0 else None
        for layer, rate in enumerate(settings.rates)
    ]


def _encoder(name: str, columns: int, tensors: dict[str, Tensor]) -> Encoder:
    """An encoder; its tensors are taken out of `tensors`."""
    start = f"encoder.{name}."
    if not any(key.startswith(start) for key in tensors):
        start = f"encoder.{name.removesuffix(' bins')}."
    arrays = {
        key.removeprefix(start): tensors.pop(key).numpy() for key in list(tensors) if key.startswith(start)
    }
    encoder = Encoder.from_dict(arrays)
    whole = {key: array for key, array in arrays.items() if not key.startswith("guess.")}
    chosen = whole.pop("chosen", None)
    if chosen is not None:
        inside = chosen.ndim == 1 and bool(((chosen >= 0) & (chosen < columns)).all())
        _check("encoder", chosen.dtype == np.int64 and inside and len(chosen) > 0)
    outputs = 0 if encoder.guess is None else encoder.guess.width
    encoded = (columns if chosen is None else len(chosen)) + outputs
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("low", "high", "margin"), (columns,))
    shapes |= dict.fromkeys(("mean", "scale"), (encoded,))
    if "edges" in whole:
        bins = whole["edges"].shape[-1] - 1
        shapes |= {"edges": (encoded, bins + 1), "offset": (encoded * bins,)}
    _check("encoder", {key: array.shape for key, array in whole.items()} == shapes)
    _check("dtypes", all(array.dtype == np.float64 for array in whole.values()))
    return encoder


def _array(tensor: Tensor) -> Any:
    _check("dtypes", tensor.dtype == torch.float64)
    return tensor.numpy()


def _check(what: str, sound: bool) -> None:
    if not sound:
        raise ValueError(f"its {what} make no sense")


def _rate(p: Any) -> Any:
    return tuple(p) if isinstance(p, list) else p
