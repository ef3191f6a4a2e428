"""A fitted estimator in one safetensors file."""

from __future__ import annotations

import math
import os
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.encode import Encoder, TargetScale
from bayesdrop.stacked.job import Trained
from bayesdrop.stacked.mixture import Component, Mixture
from bayesdrop.stacked.settings import Settings
from bayesdrop.storage import is_plain, read_tensors, write_tensors

__all__ = ["read_estimator", "write_estimator"]

_KIND = "bayesdrop-estimator"
_E = TypeVar("_E")


def write_estimator(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Networks, encoders and scales as tensors; options and names as JSON."""
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
        if network.log_noise_std is not None:
            tensors[f"{place}.log_noise_std"] = network.log_noise_std
        components.append(
            {
                "settings": network.settings.as_dict(),
                "seed": network.seed,
                "widths": list(network.widths),
                "num_data": network.num_data,
                "bins": component.bins,
            }
        )
    for bins, encoder in mixture.encoders.items():
        tensors |= {f"encoder.{bins}.{name}": torch.from_numpy(a) for name, a in encoder.as_dict().items()}
    if mixture.target is not None:
        tensors["target.mean"] = torch.from_numpy(mixture.target.mean)
        tensors["target.scale"] = torch.from_numpy(mixture.target.scale)
    classes = getattr(estimator, "classes_", None)
    names = getattr(estimator, "feature_names_in_", None)
    header = {
        "class": type(estimator).__name__,
        "options": {name: v for name, v in estimator.get_params().items() if is_plain(v)},
        "components": components,
        "num_draws": mixture.num_draws,
        "dof": None if math.isinf(mixture.dof) else mixture.dof,
        "search": list(mixture.search),
        "columns": int(estimator.n_features_in_),
        "column_names": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else classes.tolist(),
        "classes_kind": None if classes is None else classes.dtype.kind,
        "one_target": bool(getattr(estimator, "_one_target", False)),
    }
    write_tensors(path, tensors, kind=_KIND, header=header, owner=f"{type(estimator).__name__}.save")


def read_estimator(kind: type[_E], path: str | os.PathLike[str]) -> _E:
    """The estimator of a file, which must hold one of class `kind`."""
    owner = f"{kind.__name__}.load"
    tensors, header = read_tensors(path, kind=_KIND, owner=owner)
    if header.get("class") != kind.__name__:
        raise ValueError(must(owner, "path", f"a file of a {kind.__name__}", header.get("class")))
    try:
        return _rebuilt(kind, tensors, header)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{owner}: the description in {os.fspath(path)} is damaged.") from error


def _rebuilt(kind: type[_E], tensors: dict[str, Tensor], header: dict[str, Any]) -> _E:
    components = []
    for place, row in enumerate(header["components"]):
        settings = Settings(**{**row["settings"], "p": _rate(row["settings"]["p"])})
        layers = range(len(row["widths"]) - 1)
        network = Trained(
            settings=settings,
            seed=row["seed"],
            name="",
            widths=tuple(row["widths"]),
            weights=[tensors[f"{place}.{layer}.weight"] for layer in layers],
            biases=[tensors[f"{place}.{layer}.bias"] for layer in layers],
            p=[tensors[f"{place}.{layer}.p"] for layer in layers],
            log_noise_std=tensors.get(f"{place}.log_noise_std"),
            num_data=row["num_data"],
        )
        components.append(Component(network, row["bins"]))
    encoders = {}
    for bins in sorted({component.bins for component in components}):
        start = f"encoder.{bins}."
        arrays = {
            name.removeprefix(start): t.numpy() for name, t in tensors.items() if name.startswith(start)
        }
        encoders[bins] = Encoder.from_dict(arrays)
    target = None
    if "target.mean" in tensors:
        target = TargetScale(tensors["target.mean"].numpy(), tensors["target.scale"].numpy())
    options = header["options"]
    estimator: Any = kind(**options)
    estimator.mixture_ = Mixture(
        components=tuple(components),
        encoders=encoders,
        target=target,
        num_draws=header["num_draws"],
        dof=math.inf if header["dof"] is None else float(header["dof"]),
        search=tuple(header["search"]),
    )
    estimator.n_features_in_ = header["columns"]
    if header["column_names"] is not None:
        estimator.feature_names_in_ = np.asarray(header["column_names"], dtype=object)
    if header["classes"] is not None:
        estimator.classes_ = np.asarray(
            header["classes"], dtype=object if header["classes_kind"] == "O" else None
        )
    if target is not None:
        estimator._one_target = header["one_target"]
        estimator._num_targets = len(target.mean)
    return estimator


def _rate(p: Any) -> Any:
    return tuple(p) if isinstance(p, list) else p
