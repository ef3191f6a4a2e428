"""Wrong arguments, one at a time: every public call must refuse them in its own words, or be right.

    right      accepted, and all that comes back is finite
    refused    a ValueError or TypeError that starts with the owner's name and names the argument
    wrong      any other error, a value that means nothing accepted, or NaN that comes back without a word

A row of `calls` is one call that is right as it stands. `WRONG` holds the values that are put in the place of
one of its arguments; the argument's kind says which of them it may accept.
"""

from __future__ import annotations

import atexit
import dataclasses
import math
import random
import re
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bayesdrop as bd

__all__ = ["Call", "calls", "judge", "outcomes"]

Kind = Callable[[Any], bool]  # whether a value may be accepted


# kinds of arguments


def _number(value: Any) -> float | None:
    if isinstance(value, bool | np.bool_ | complex | str | bytes):
        return None
    if isinstance(value, Tensor | np.ndarray):
        single = value.size if isinstance(value, np.ndarray) else value.numel()
        return (
            float(value) if single == 1 and not np.iscomplexobj(value) and value.dtype != torch.bool else None
        )
    return float(value) if isinstance(value, int | float | np.number) else None


def real(low: float = -math.inf, high: float = math.inf, *, closed: bool = True, none: bool = False) -> Kind:
    """A finite number from `low` (or above it, if not closed) to below `high`."""

    def accepts(value: Any) -> bool:
        if value is None:
            return none
        number = _number(value)
        return (
            number is not None
            and math.isfinite(number)
            and (low <= number if closed else low < number)
            and number < high
        )

    return accepts


def whole(low: int = 1, high: float = 2**63, *, none: bool = False) -> Kind:
    """An int from `low` to below `high`."""

    def accepts(value: Any) -> bool:
        if value is None:
            return none
        return isinstance(value, int | np.integer) and not isinstance(value, bool) and low <= value < high

    return accepts


def choice(*options: Any) -> Kind:
    """One of some values."""
    return lambda value: isinstance(value, str | int | None.__class__) and value in options


def several(kind: Kind) -> Kind:
    """One value of a kind, or some of them."""

    def accepts(value: Any) -> bool:
        if isinstance(value, Tensor | np.ndarray):
            return value.ndim == 0 or all(kind(one.item()) for one in value.reshape(-1))
        if isinstance(value, list | tuple | range):
            return all(kind(one) for one in value)
        return kind(value)

    return accepts


def flag(value: Any) -> bool:
    """True or False."""
    return isinstance(value, bool)


def module(value: Any) -> bool:
    """A module."""
    return isinstance(value, nn.Module)


def anything(value: Any) -> bool:
    """Judged by what comes back."""
    return True


def nothing(value: Any) -> bool:
    """None of the wrong values will do."""
    return False


def function(value: Any) -> bool:
    """Something to call; what it does when it is called is the caller's affair."""
    return callable(value)


def arithmetic(value: Any) -> bool:
    """A tensor that is computed with as it is: NaN that goes in comes out."""
    return True


rate = real(0, 1)
inner_rate = real(0, 1, closed=False)
positive = real(0, closed=False)
seed = whole(0)
count = whole(1)


# values


def _wrong() -> dict[str, Any]:
    numbers = {
        "nan": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "-1": -1,
        "0": 0,
        "0.5": 0.5,
        "2.5": 2.5,
        "1e300": 1e300,
        "1e-300": 1e-300,
        "almost 1": 1 - 1e-9,
        "10**30": 10**30,
        "1j": 1j,
        "True": True,
        "np.int64(3)": np.int64(3),
        "np.float32(nan)": np.float32(math.nan),
    }
    others = {
        "None": None,
        "'abc'": "abc",
        "''": "",
        "'0.1'": "0.1",
        "bytes": b"0.1",
        "object()": object(),
        "[]": [],
        "()": (),
        "{}": {},
        "set()": set(),
        "{1}": {1},
        "[1, 2]": [1, 2],
        "['a']": ["a"],
        "[nan]": [math.nan],
        "range(3)": range(3),
        "lambda": lambda *_: None,
        "a class": int,
        "a module": nn.Tanh(),
        "a likelihood": bd.Gaussian(0.1),
    }
    tensors = {
        "tensor 2.0": torch.tensor(2.0),
        "tensor nan": torch.tensor(math.nan),
        "tensor (3,)": torch.tensor([0.1, 0.2, 0.3]),
        "tensor (7, 5)": torch.linspace(-1, 1, 35).reshape(7, 5),
        "tensor of nan": torch.full((4, 2), math.nan),
        "tensor of inf": torch.full((4, 2), math.inf),
        "empty tensor": torch.empty(0),
        "empty rows": torch.empty(0, 2),
        "ints": torch.tensor([[1, 2], [3, 4]]),
        "bools": torch.tensor([True, False]),
        "complex": torch.zeros(2, 2, dtype=torch.complex64),
        "half": torch.zeros(2, 2, dtype=torch.float16),
        "array (3,)": np.array([1.0, 2.0, 3.0]),
        "array of nan": np.full((4, 2), np.nan),
        "array of text": np.array(["a", "b"]),
        "empty array": np.empty((0, 2)),
        "huge array": np.full((4, 2), 1e300),
    }
    return numbers | others | tensors


WRONG = _wrong()


# calls


@dataclass(frozen=True)
class Call:
    """A public call that is right as it stands."""

    owner: str  #: what its errors start with; several with |
    run: Callable[..., Any]
    good: Callable[[], dict[str, Any]]  #: arguments by name, made anew
    kinds: Mapping[str, Kind]  #: the arguments that are made wrong
    infinite: bool = False  #: whether infinity is an answer
    unknown: bool = False  #: whether NaN is one, as documented
    optional: bool = False  #: whether None stands for what is not given


def _linear() -> nn.Linear:
    return nn.Linear(3, 2)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@cache
def _numbers() -> bd.Prediction:
    return bd.Prediction.from_draws(_normal(5, 6, 2), bd.Gaussian(0.3))


@cache
def _classes() -> bd.Prediction:
    return bd.Prediction.from_draws(_normal(5, 6, 3), bd.Categorical())


@cache
def _answers() -> bd.Prediction:
    return bd.Prediction.from_draws(_normal(5, 6, 2), bd.Bernoulli())


_LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
_X = np.random.default_rng(0).normal(size=(12, 3))
_Y = _X @ np.array([1.0, -1.0, 0.5]) + 0.1


def _layers() -> Iterator[Call]:
    common: dict[str, Kind] = {
        "layer": nothing,
        "p": several(rate),
        "length_scale": positive,
        "scale_by_fan_in": flag,
    }
    biased = common | {"bias_p": real(0, 1, none=True), "prior_on_bias": flag}

    def made(cls: Any) -> Callable[..., Any]:
        def run(**arguments: Any) -> Any:
            layer = cls(**arguments)
            x = torch.linspace(-1, 1, 12).reshape(4, 3)
            return [layer.kl(), layer.train()(x), layer.eval()(x), layer.p]

        return run

    for cls, kinds in (
        (bd.BernoulliDropout, biased | {"elementwise": flag}),
        (bd.GaussianDropout, common | {"elementwise": flag}),
        (bd.DropConnect, biased | {"per_row": flag}),
        (
            bd.MixtureDropout,
            common
            | {
                "sigma": positive,
                "learn_sigma": flag,
                "components": whole(2, 257),
                "rank": whole(0, 4097),
                "per_row": flag,
            },
        ),
    ):
        good: dict[str, Any] = {"layer": _linear(), "p": 0.2}
        yield Call(cls.__name__, made(cls), lambda good=good: dict(good), kinds)
    learned = {
        "layer": nothing,
        "p_init": several(inner_rate),
        "length_scale": positive,
        "scale_by_fan_in": flag,
        "per": choice("layer", "unit"),
    }
    yield Call(
        "ConcreteDropout",
        made(bd.ConcreteDropout),
        lambda: {"layer": _linear()},
        learned | {"temperature": positive},
    )
    yield Call("LearnableDropout", _learnable, lambda: {"layer": _linear()}, learned)
    yield Call(
        "VariationalGaussianDropout",
        made(bd.VariationalGaussianDropout),
        lambda: {"layer": _linear()},
        {
            "layer": nothing,
            "p_init": inner_rate,
            "noise": choice("weights", "inputs"),
            "per": choice("layer", "unit", "weight"),
            "capped": flag,
        },
    )
    yield Call(
        "MeanFieldGaussian",
        made(bd.MeanFieldGaussian),
        lambda: {"layer": _linear()},
        {
            "layer": nothing,
            "p_init": inner_rate,
            "per_row": flag,
            "length_scale": positive,
            "scale_by_fan_in": flag,
            "prior_on_bias": flag,
        },
    )
    net = nn.Sequential(bd.ConcreteDropout(_linear()))
    yield Call(
        "total_kl|kl",
        bd.total_kl,
        lambda: {"model": net},
        {"model": module, "length_scale": real(0, closed=False, none=True)},
    )
    yield Call("rates", bd.rates, lambda: {"model": net}, {"model": module})
    dropped = nn.Sequential(bd.BernoulliDropout(_linear()))
    yield Call(
        "set_rates",
        lambda **a: bd.set_rates(**a) or bd.rates(dropped)["0"],
        lambda: {"model": dropped, "p": 0.2},
        {"model": nothing, "p": rate},
    )
    yield Call(
        "RateSchedule",
        lambda **a: torch.tensor([bd.RateSchedule(**a)(s / 4) for s in range(5)]),
        lambda: {"start": 0.5, "end": 0.1},
        {
            "start": rate,
            "end": rate,
            "shape": choice("linear", "cosine", "geometric"),
            "until": lambda v: real(0, 2, closed=False)(v) and float(v) <= 1,
        },
    )
    yield Call(
        "share_rates",
        bd.share_rates,
        lambda: {"model": nn.Sequential(bd.ConcreteDropout(_linear()))},
        {"model": module, "p": real(0, 1, closed=False, none=True)},
    )
    plain = lambda: nn.Sequential(_linear(), nn.Dropout(0.5), nn.Linear(2, 2))  # noqa: E731
    yield Call(
        "convert",
        bd.convert,
        lambda: {"model": plain(), "kind": "bernoulli"},
        {"model": module, "kind": nothing, "p": several(real(0, 1, none=True))},
    )


def _learnable(**arguments: Any) -> Any:
    layer = bd.LearnableDropout(**arguments)
    return [layer.kl(), layer.eval()(torch.linspace(-1, 1, 12).reshape(4, 3)), layer.p]


def _likelihoods() -> Iterator[Call]:
    for name, likelihood, output, y in (
        ("Gaussian", bd.Gaussian(0.5), torch.zeros(4, 2), torch.ones(4, 2)),
        ("Laplace", bd.Laplace(0.5), torch.zeros(4, 2), torch.ones(4, 2)),
        ("HeteroscedasticGaussian", bd.HeteroscedasticGaussian(), torch.zeros(4, 4), torch.ones(4, 2)),
        ("Categorical", bd.Categorical(), torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])),
        ("Bernoulli", bd.Bernoulli(), torch.zeros(4, 2), torch.ones(4, 2)),
        ("Multinomial", bd.Multinomial(), torch.zeros(4, 2), torch.ones(4, 2)),
    ):
        good = {"output": output, "y": y}
        yield Call(
            name, likelihood.log_prob, lambda good=good: dict(good), {"output": arithmetic, "y": arithmetic}
        )
        yield Call(
            name, likelihood.sample, lambda good=good: {"output": good["output"]}, {"output": arithmetic}
        )
        yield Call(
            name, likelihood.moments, lambda good=good: {"output": good["output"]}, {"output": arithmetic}
        )
    yield Call(
        "Gaussian",
        bd.Gaussian,
        lambda: {"noise_std": 0.1, "noise": "map"},
        {
            "noise_std": several(real(0, closed=False, none=True)),
            "noise": choice("fixed", "learned", "map", None),
            "prior_shape": positive,
            "prior_rate": positive,
        },
    )
    yield Call(
        "Laplace",
        bd.Laplace,
        lambda: {"scale": 0.1, "noise": "learned"},
        {
            "scale": several(real(0, closed=False, none=True)),
            "noise": choice("fixed", "learned", None),
        },
    )
    yield Call(
        "Gaussian.m_step",
        lambda **a: bd.Gaussian(noise="map").m_step(**a),
        lambda: {"squared_error": torch.tensor(1.0), "num_data": 5},
        {"squared_error": anything, "num_data": whole(2)},
    )
    yield Call(
        "Categorical",
        bd.Categorical,
        dict,
        {
            "class_axis": lambda v: v is None or (whole(-9)(v) and v != 0),
            "precision": positive,
            "learn_precision": flag,
        },
    )
    yield Call(
        "Multinomial",
        bd.Multinomial,
        dict,
        {"class_axis": lambda v: v is None or (whole(-9)(v) and v != 0), "coefficient": flag},
    )


def _objectives() -> Iterator[Call]:
    net = lambda: nn.Sequential(bd.BernoulliDropout(_linear()))  # noqa: E731
    elbo = bd.NegativeELBO(bd.Gaussian(0.5), num_data=4)
    yield Call(
        "NegativeELBO",
        bd.NegativeELBO,
        lambda: {"likelihood": bd.Gaussian(), "num_data": 4},
        {
            "likelihood": lambda v: isinstance(v, bd.Likelihood),
            "num_data": count,
            "length_scale": real(0, closed=False, none=True),
            "estimator": choice("disarm", "arm", "loo", "reinforce"),
            "num_passes": choice(None, 1, 2),
        },
    )
    yield Call(
        "NegativeELBO|Gaussian",
        elbo,
        lambda: {"model": net(), "x": torch.ones(4, 3), "y": torch.ones(4, 2)},
        {"model": nothing, "y": arithmetic},
    )
    yield Call(
        "arm_loss",
        bd.arm_loss,
        lambda: {"model": net(), "loss_per_example": lambda _: torch.ones(4)},
        {
            "model": module,
            "loss_per_example": function,
            "estimator": choice("disarm", "arm", "loo", "reinforce"),
            "num_passes": choice(None, 1, 2),
        },
    )
    options: dict[str, Kind] = {
        "p": rate,
        "length_scale": positive,
        "num_data": count,
        "loss_weight": positive,
    }
    good = {"p": 0.1, "length_scale": 0.1, "num_data": 10}
    yield Call(
        "precision_from_weight_decay",
        bd.precision_from_weight_decay,
        lambda: {"weight_decay": 0.1, **good},
        options | {"weight_decay": positive},
    )
    yield Call(
        "weight_decay_from_precision",
        bd.weight_decay_from_precision,
        lambda: {"precision": 0.1, **good},
        options | {"precision": positive},
    )


def _engine() -> Iterator[Call]:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
    rows = torch.ones(4, 3)
    where: Kind = lambda v: v is None or (isinstance(v, str | list | tuple | set) and not v)  # noqa: E731
    yield Call(
        "predict|Gaussian",
        bd.predict,
        lambda: {"model": net, "x": rows, "num_draws": 3, "likelihood": bd.Gaussian(0.5)},
        {
            "model": nothing,
            "num_draws": whole(1, 10_000),
            "seed": whole(-(2**63), 2**63),
            "likelihood": lambda v: v is None or isinstance(v, bd.Likelihood),
            "draws": choice("shared", "independent"),
            "method": choice("draws", "moments"),
            "batch_size": whole(1, none=True),
            "keep_draws": lambda v: v is None or flag(v),
            "targets": arithmetic,
            "tolerance": real(0, 1, closed=False, none=True),
            "include": where,
            "exclude": where,
            "recurrent": choice("module", "variational"),
            "max_memory": whole(1, none=True),
            "plan": choice(None, "stacked", "kept units", "loop", "whole model"),
            "share": choice(None),
            "items": choice(None, "pairs", "inputs"),
            "output": function,
            "covariance": flag,
        },
        optional=True,
    )
    yield Call(
        "compile",
        lambda **options: bd.compile(**options).draws(rows),
        lambda: {"model": net, "example": rows, "num_draws": 3},
        {
            "model": nothing,
            "example": nothing,
            "num_draws": whole(1, 10_000),
            "seed": whole(-(2**63), 2**63),
            "likelihood": lambda v: v is None or isinstance(v, bd.Likelihood),
            "include": where,
            "exclude": where,
            "output": function,
        },
        optional=True,
    )
    yield Call(
        "FunctionDraw",
        lambda model, **options: bd.FunctionDraw(model, **options).index,
        lambda: {"model": net},
        {
            "model": module,
            "seed": whole(-(2**63), 2**63),
            # Several functions at once are a sequence of whole numbers, and a range is one.
            "index": lambda v: isinstance(v, range) or whole(0)(v),
        },
    )
    items = choice(None, "pairs", "inputs")
    yield Call("audit", bd.audit, lambda: {"model": net, "x": rows}, {"model": module, "items": items})
    yield Call(
        "fit|NegativeELBO",
        lambda **options: bd.fit(**options).loss,
        lambda: {
            "model": nn.Sequential(bd.BernoulliDropout(_linear())),
            "train": (rows, torch.ones(4, 2)),
            "objective": bd.NegativeELBO(bd.Gaussian(0.5), num_data=4),
            "epochs": 1,
            "progress": False,
        },
        {
            "model": nothing,
            "train": nothing,
            "objective": function,
            "epochs": whole(1),
            "batch_size": whole(none=True),
            "batches": lambda v: v is None,
            "generator": lambda v: v is None,
            "validation": lambda v: v is None,
            "lr": real(0, closed=False),
            "rate_lr": real(0, closed=False, none=True),
            "weight_decay": real(0),
            "patience": lambda v: v is None,
            "min_delta": real(0),
            "clip_norm": real(0, closed=False, none=True),
            "validation_draws": whole(),
            "checkpoint": lambda v: v is None or isinstance(v, str),
            "checkpoint_every": whole(),
            "resume": flag,
            "seed": seed,
        },
        unknown=True,
    )


def _predictions() -> Iterator[Call]:
    prediction = _numbers()
    yield Call(
        "Prediction",
        bd.Prediction.from_draws,
        lambda: {"draws": torch.randn(5, 6, 2), "likelihood": bd.Gaussian(0.1)},
        {
            "draws": arithmetic,
            "likelihood": lambda v: v is None or isinstance(v, bd.Likelihood),
            "shared": flag,
        },
    )
    yield Call("Prediction.quantile", prediction.quantile, lambda: {"q": 0.5}, {"q": several(inner_rate)})
    yield Call("Prediction.interval", prediction.interval, dict, {"level": inner_rate})
    yield Call(
        "Prediction.sample",
        prediction.sample,
        lambda: {"n": 2},
        {"n": whole(1, 1000), "seed": seed, "joint": lambda v: v is None or flag(v)},
    )
    for one, y in ((prediction, torch.zeros(6, 2)), (_classes(), _LABELS), (_answers(), torch.zeros(6, 2))):
        owner = f"Prediction.log_prob|{type(one.likelihood).__name__}"
        yield Call(owner, one.log_prob, lambda y=y: {"y": y}, {"y": anything})
        yield Call(
            owner.replace("log_prob", "joint_log_prob"),
            one.joint_log_prob,
            lambda y=y: {"y": y},
            {"y": anything},
        )


def _metrics() -> Iterator[Call]:
    m = bd.metrics
    prediction = lambda v: isinstance(v, bd.Prediction)  # noqa: E731
    ignored: dict[str, Kind] = {"ignore_index": whole(-(2**63), none=True)}
    for name in ("accuracy", "brier", "mean_log_likelihood"):
        yield Call(
            name,
            getattr(m, name),
            lambda: {"prediction": _classes(), "y": _LABELS},
            {"prediction": prediction, "y": anything, **ignored},
        )
    for name in ("expected_calibration_error", "rms_calibration_error", "class_calibration_error"):
        kinds = {"prediction": prediction, "y": anything, "num_bins": whole(1, 10**6), **ignored}
        if name == "class_calibration_error":
            kinds["weighted"] = flag
        yield Call(name, getattr(m, name), lambda: {"prediction": _answers(), "y": torch.zeros(6, 2)}, kinds)
    for name in ("rmse", "mean_absolute_error", "r2", "crps", "mean_log_likelihood", "joint_log_likelihood"):
        yield Call(
            f"{name}|Gaussian|Prediction.log_prob",
            getattr(m, name),
            lambda: {"prediction": _numbers(), "y": torch.zeros(6, 2)},
            {"prediction": prediction, "y": anything},
        )
    for name in ("interval_coverage", "interval_width"):
        good = {"prediction": _numbers()} | ({"y": torch.zeros(6, 2)} if name == "interval_coverage" else {})
        yield Call(
            f"{name}|Prediction.interval",
            getattr(m, name),
            lambda good=good: dict(good),
            dict.fromkeys(good, anything)
            | {"prediction": prediction, "level": inner_rate, "interval": lambda v: v is None},
        )
    yield Call(
        "CalibrationCurve.from_ranks",
        m.CalibrationCurve.from_ranks,
        lambda: {"rank": torch.rand(6)},
        {"rank": anything, "levels": anything},
    )
    yield Call(
        "RiskCoverage.from_losses",
        m.RiskCoverage.from_losses,
        lambda: {"score": torch.rand(6), "loss": torch.rand(6)},
        {"score": anything, "loss": anything},
    )
    scores = ("entropy", "expected_entropy", "mutual_information", "variation_ratio", "max_prob", None)
    for name in ("risk_coverage", "area_under_risk_coverage"):
        yield Call(
            name,
            getattr(m, name),
            lambda: {"prediction": _classes(), "y": _LABELS},
            {
                "prediction": prediction,
                "y": anything,
                "score": choice(*scores),
                "loss": choice("error", "negative_log_likelihood", None),
                **ignored,
            },
        )
    yield Call(
        "misclassification_auroc",
        m.misclassification_auroc,
        lambda: {"prediction": _classes(), "y": (_classes().label + torch.tensor([0, 0, 0, 1, 1, 1])) % 3},
        {"prediction": prediction, "y": anything, "score": choice(*scores), **ignored},
    )
    for name in ("ood_auroc", "ood_fpr"):
        yield Call(
            name,
            getattr(m, name),
            lambda: {"inside": _classes(), "outside": _classes()},
            {
                "inside": prediction,
                "outside": prediction,
                "score": choice(*scores),
                "by": choice("label", "row"),
            }
            | ({"tpr": lambda v: real(0, 2, closed=False)(v) and float(v) <= 1} if name == "ood_fpr" else {}),
        )
    for name in ("predictive_entropy", "expected_entropy", "mutual_information", "variation_ratio"):
        yield Call(name, getattr(m, name), lambda: {"prediction": _classes()}, {"prediction": prediction})
    yield Call(
        "pavpu",
        m.pavpu,
        lambda: {"prediction": _classes(), "y": _LABELS},
        {
            "prediction": prediction,
            "y": anything,
            "threshold": real(none=True),
            "num_thresholds": whole(2, 10**6),
            "patch": whole(1, 2),
            "stride": whole(1, 2, none=True),
            "entropy_range": anything,
            **ignored,
        },
        unknown=True,
    )
    yield Call(
        "uncertainty",
        m.uncertainty,
        lambda: {"prediction": _numbers()},
        {"prediction": prediction, "score": choice("std", "epistemic", "aleatoric", None)},
    )
    for name in ("calibration_curve", "regression_calibration_error"):
        yield Call(
            name,
            getattr(m, name),
            lambda: {"prediction": _numbers(), "y": torch.zeros(6, 2)},
            {"prediction": prediction, "y": anything, "levels": anything},
        )


def _calibrators() -> Iterator[Call]:
    c = bd.calibration
    prediction = lambda v: isinstance(v, bd.Prediction)  # noqa: E731
    ignored: dict[str, Kind] = {"ignore_index": whole(-(2**63), none=True)}
    yield Call("TemperatureScaling", c.TemperatureScaling, dict, {"over": choice("draws", "mean")})
    yield Call(
        "TemperatureScaling.fit",
        c.TemperatureScaling().fit,
        lambda: {"prediction": _classes(), "y": _LABELS},
        {"prediction": prediction, "y": anything, **ignored},
    )
    fitted = c.TemperatureScaling().fit(_classes(), _LABELS)
    yield Call(
        "TemperatureScaling.apply",
        fitted.apply,
        lambda: {"prediction": _classes()},
        {"prediction": prediction},
    )
    yield Call(
        "ConformalClassifier",
        c.ConformalClassifier,
        dict,
        {
            "level": inner_rate,
            "score": choice("lac", "aps", "raps"),
            "randomized": flag,
            "penalty": real(0),
            "free_ranks": whole(0),
            "per_class": flag,
            "never_empty": flag,
        },
    )
    yield Call(
        "ConformalClassifier.fit",
        c.ConformalClassifier(0.5).fit,
        lambda: {"prediction": _classes(), "y": _LABELS},
        {"prediction": prediction, "y": anything, "seed": seed, **ignored},
    )
    sets = c.ConformalClassifier(0.5, score="aps").fit(_classes(), _LABELS)
    yield Call(
        "ConformalClassifier.sets",
        sets.sets,
        lambda: {"prediction": _classes()},
        {"prediction": prediction, "seed": seed},
    )
    made = sets.sets(_classes())
    yield Call("PredictionSets.covers", made.covers, lambda: {"y": _LABELS}, {"y": anything})
    yield Call(
        "ConformalRegressor",
        c.ConformalRegressor,
        dict,
        {"level": inner_rate, "score": choice("scaled", "quantile", "absolute"), "joint": flag},
    )
    yield Call(
        "ConformalRegressor.fit",
        c.ConformalRegressor(0.5).fit,
        lambda: {"prediction": _numbers(), "y": torch.zeros(6, 2)},
        {"prediction": prediction, "y": anything},
    )
    yield Call(
        "QuantileRecalibration.fit",
        c.QuantileRecalibration().fit,
        lambda: {"prediction": _numbers(), "y": torch.zeros(6, 2)},
        {"prediction": prediction, "y": anything},
    )
    mapped = c.QuantileRecalibration().fit(_numbers(), torch.zeros(6, 2))
    yield Call(
        "QuantileRecalibration.interval",
        mapped.interval,
        lambda: {"prediction": _numbers()},
        {"prediction": prediction, "level": inner_rate},
    )
    yield Call(
        "QuantileRecalibration.cdf",
        mapped.cdf,
        lambda: {"prediction": _numbers(), "y": torch.zeros(6, 2)},
        {"prediction": prediction, "y": anything},
    )
    yield Call(
        "coverage_law",
        c.coverage_law,
        lambda: {"num_calibration": 50, "level": 0.9},
        {"num_calibration": count, "level": inner_rate},
    )
    yield Call(
        "conformal_quantile",
        c.conformal_quantile,
        lambda: {"scores": torch.rand(20), "level": 0.5},
        {"scores": anything, "level": inner_rate},
        infinite=True,
    )
    state = fitted.state()
    yield Call(
        "TemperatureScaling.from_state",
        c.TemperatureScaling.from_state,
        lambda: {"state": state},
        {"state": nothing},
    )


def _acquisition() -> Iterator[Call]:
    a = bd.acquire
    prediction = lambda v: isinstance(v, bd.Prediction)  # noqa: E731
    for name in ("entropy", "bald", "variation_ratio", "mean_std"):
        yield Call(
            f"acquire.{name}",
            getattr(a, name),
            lambda: {"prediction": _classes()},
            {"prediction": prediction},
        )
    yield Call(
        "acquire.random",
        a.random,
        lambda: {"prediction": _classes()},
        {"prediction": prediction, "seed": seed},
    )
    among: Kind = anything
    yield Call(
        "acquire.select",
        a.select,
        lambda: {"scores": torch.rand(6), "k": 2},
        {"scores": anything, "k": whole(1, 7), "among": among},
    )
    yield Call(
        "acquire.batch_bald",
        a.batch_bald,
        lambda: {"prediction": _classes(), "k": 2},
        {
            "prediction": prediction,
            "k": whole(1, 7),
            "among": among,
            "max_configurations": count,
            "seed": seed,
        },
    )


def _cascades() -> Iterator[Call]:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
    rows = torch.linspace(-1, 1, 12).reshape(4, 3)
    good = {"weak": net, "strong": nn.Linear(3, 2), "share": 0.5, "likelihood": bd.Categorical()}
    scores = ("entropy", "expected_entropy", "mutual_information", "variation_ratio", "max_prob", None)
    yield Call(
        "cascade|predict",
        lambda **options: bd.cascade(**options)(rows).mean,
        lambda: {**good, "num_draws": 3},
        {
            "weak": nothing,
            "strong": nothing,
            "share": real(0, 1 + 1e-12),
            "threshold": lambda v: v is None,
            "score": choice(*scores),
            "likelihood": lambda v: v is None or isinstance(v, bd.Likelihood),
            "num_draws": whole(2, 1000),
            "strong_draws": whole(1, 1000, none=True),
            "seed": seed,
            "batch_size": whole(1, none=True),
        },
    )
    both = bd.cascade(**good, num_draws=3)  # type: ignore[arg-type]
    yield Call(
        "Cascade.with_threshold",
        lambda **options: both.with_threshold(rows, **options).threshold,
        lambda: {"y": torch.tensor([0, 1, 0, 1]), "cost": 0.1},
        {"y": nothing, "cost": real(0, none=True)},
        infinite=True,
    )


def _autoencoders() -> Iterator[Call]:
    v = bd.vae
    rows = torch.linspace(-1, 1, 12).reshape(4, 3)
    good = {"encoder": nn.Linear(3, 4), "decoder": nn.Linear(2, 3), "latent": 2}

    def built(cls: Any) -> Callable[..., Any]:
        return lambda **options: cls(likelihood=bd.Gaussian(0.5), **options).bound(rows).loss

    common: dict[str, Kind] = {
        "encoder": nothing,
        "decoder": nothing,
        "latent": choice(2),
        "prior": lambda value: value is None,
        "estimator": choice("disarm", "arm", "loo", "reinforce"),
    }
    yield Call("VAE", built(v.VAE), lambda: dict(good), common | {"flow": lambda value: value is None})
    yield Call(
        "SIVAE",
        built(v.SIVAE),
        lambda: {**good, "num_inputs": 3},
        common
        | {
            "num_inputs": whole(3, 4),
            "num_masks": whole(1, 100),
            "noise": choice("learnable", "concrete", "gaussian", "fixed", None),
            "p": inner_rate,
            "temperature": positive,
        },
    )
    model = v.SIVAE(**good, num_inputs=3, likelihood=bd.Gaussian(0.5))  # type: ignore[arg-type]
    for name, count_name in (("log_likelihood", "num_importance"), ("lower_bound", "num_samples")):
        yield Call(
            f"SIVAE.{name}|SIVAE",
            getattr(model, name),
            lambda count_name=count_name: {"x": rows, count_name: 2},
            {"x": nothing, "target": lambda value: value is None, count_name: whole(1, 100), "seed": seed},
        )
    yield Call(
        "SIVAE.sample", model.sample, lambda: {"num_rows": 2}, {"num_rows": whole(1, 1000), "seed": seed}
    )
    yield Call("SIVAE", model.bound, lambda: {"x": rows}, {"x": nothing, "beta": real(0, 1e16)})
    yield Call("NegativeBound", v.NegativeBound, dict, {"beta": real(0, 1e16)})
    yield Call("IAF", v.IAF, lambda: {"latent": 2}, {"latent": whole(1, 200), "num_steps": whole(1, 101)})
    yield Call(
        "VampPrior", v.VampPrior, lambda: {"inputs": rows}, {"inputs": anything, "low": real(none=True)}
    )


def _attacks() -> Iterator[Call]:
    a = bd.attacks
    net = nn.Sequential(bd.BernoulliDropout(nn.Linear(3, 3), p=0.3))
    size = real(0, 1e16)
    common: dict[str, Kind] = {
        "model": module,
        "x": nothing,
        "y": nothing,
        "likelihood": nothing,
        "through": choice("mean", "draws"),
        "goal": choice("wrong", "sure"),
        "num_draws": whole(1, 10**6 + 1),
        "seed": seed,
    }
    steps: dict[str, Kind] = common | {
        "eps": size,
        "norm": choice("linf", "l2"),
        "clamp": lambda v: v is None,
        "batch_size": count,
    }

    def good() -> dict[str, Any]:
        return {"model": net, "x": _normal(6, 3), "y": _LABELS, "likelihood": bd.Categorical()}

    yield Call("attacks.loss_gradient|Gaussian", a.loss_gradient, good, common)
    yield Call("attacks.fgsm|Gaussian", a.fgsm, lambda: good() | {"eps": 0.1}, steps)
    yield Call(
        "attacks.pgd|Gaussian",
        a.pgd,
        lambda: good() | {"eps": 0.1, "steps": 2, "num_draws": 2},
        steps
        | {
            "steps": whole(1, 10**6 + 1),
            "step_size": real(0, 1e16, closed=False, none=True),
            "random_start": flag,
        },
    )


def _linear_models() -> Iterator[Call]:
    lin = bd.linear
    criteria = ("evidence", "marginal", "cv")

    def regression(X: Any = _X, y: Any = _Y, sample_weight: Any = None, **options: Any) -> Any:
        made = lin.BayesianDropoutRegression(**options).fit(X, y, sample_weight)
        return [
            made.coef_,
            made.intercept_,
            *made.predict(
                _X[:, : made.coef_.shape[-1]] if np.shape(X)[-1] <= 3 else np.asarray(X), return_std=True
            ),
        ]

    def classifier(X: Any = _X, y: Any = _Y > 0, **options: Any) -> Any:
        made = lin.BayesianDropoutClassifier(**options).fit(X, y)
        return [made.coef_, made.predict_proba(np.asarray(X, dtype=float))]

    either = lambda kind: lambda v: v in criteria if isinstance(v, str) else several(kind)(v)  # noqa: E731
    common: dict[str, Kind] = {
        "X": anything,
        "y": anything,
        "f": either(rate),
        "lambda0": either(real(0)),
        "fit_intercept": flag,
        "solver": choice("primal", "dual", "cg", "auto"),
        "tol": positive,
        "max_iter": whole(none=True),
    }
    yield Call(
        "BayesianDropoutRegression",
        regression,
        dict,
        common | {"a0": real(0), "b0": real(0), "sample_weight": anything},
    )
    yield Call(
        "BayesianDropoutClassifier|BayesianDropoutRegression",
        classifier,
        dict,
        common | {"method": choice("sign", "logistic"), "expectation": choice("gaussian", "enumerate")},
    )
    fitted = lin.BayesianDropoutRegression().fit(_X, _Y)
    yield Call(
        "BayesianDropoutRegression.sample_posterior",
        fitted.sample_posterior,
        lambda: {"num_draws": 3},
        {"num_draws": whole(1, 10**6), "seed": seed},
    )
    yield Call(
        "BayesianDropoutRegression.predict_interval|BayesianDropoutRegression",
        fitted.predict_interval,
        lambda: {"X": _X},
        {"X": anything, "level": inner_rate, "predictive": choice("scaled", "dropped", "undropped")},
    )
    yield Call(
        "BayesianDropoutRegression",
        fitted.predict,
        lambda: {"X": _X},
        {"X": anything, "return_std": flag, "predictive": choice("scaled", "dropped", "undropped")},
    )
    yield Call(
        "BayesianDropoutRegression.covariance",
        fitted.covariance,
        dict,
        {"kind": choice("full", "diagonal", "low-rank")},
    )
    yield Call(
        "dropout_path",
        lin.dropout_path,
        lambda: {"X": _X, "y": _Y, "f": [0.1], "lambda0": [0.1]},
        {
            "X": anything,
            "y": anything,
            "f": several(rate),
            "lambda0": several(real(0)),
            "fit_intercept": flag,
            "scores": flag,
            "solver": choice("primal", "dual", "cg", "auto"),
            "tol": positive,
            "max_iter": whole(none=True),
        },
    )
    yield Call("DropPerturbation", lin.DropPerturbation, lambda: {"f": 0.5}, {"f": several(rate)})
    rule = {
        "log_prior": lambda w: -w.square().sum(),
        "log_likelihood": lambda w: w.sum(),
        "perturb": lin.DropPerturbation(0.5),
    }
    yield Call(
        "dropout_log_posterior",
        lambda **k: lin.dropout_log_posterior(**k)(torch.ones(2)),
        lambda: dict(rule),
        {
            "log_prior": function,
            "log_likelihood": function,
            "perturb": function,
            "num_draws": whole(1, 10**6, none=True),
            "seed": seed,
        },
    )


def _networks() -> Iterator[Call]:
    yield Call(
        "mlp|BernoulliDropout",
        bd.models.mlp,
        lambda: {"in_features": 3, "hidden": (4,), "out_features": 2},
        {
            "in_features": whole(1, 10**4),
            "hidden": several(whole(1, 10**4)),
            "out_features": whole(1, 10**4),
            "p": several(rate),
            "input_p": several(real(0, 1, none=True)),
            "activation": function,
            "layer": function,
        },
    )
    yield Call(
        "random_phases",
        lambda **options: bd.models.random_phases(
            bd.models.mlp(2, 4, 1, activation=bd.models.Cosine), **options
        ).eval()(torch.ones(3, 2)),
        dict,
        {"length_scale": positive, "variance": positive, "seed": seed},
    )
    yield Call(
        "lenet|BernoulliDropout",
        bd.models.lenet,
        lambda: {"layer": bd.BernoulliDropout},
        {
            "num_classes": whole(1, 10**4),
            "p": rate,
            "where": choice("last", "all"),
            "layer": function,
        },
        optional=True,
    )

    def process(x: Any = None, y: Any = None, **options: Any) -> Any:
        kernel = bd.gp.NetworkKernel(**{"nonlinearity": "relu"} | options)
        return kernel(torch.ones(3, 2) if x is None else x, y)

    yield Call(
        "NetworkKernel|second_moment|activation",
        process,
        dict,
        {
            "x": anything,
            "y": anything,
            "nonlinearity": function,
            "length_scale": several(positive),
            "bias_std": several(real(0)),
            "variance": several(positive),
            "depth": whole(1, 100),
        },
    )
    kernel = bd.gp.NetworkKernel("relu", depth=2)
    width: Kind = several(whole(1, 10_000))
    yield Call(
        "NetworkKernel.features|NetworkKernel.given|FiniteKernel|NetworkKernel.approximate",
        lambda **options: kernel.given(**options)(torch.ones(3, 2)),
        lambda: {"num_units": 4},
        {"num_units": width, "seed": seed},
    )
    yield Call(
        "NetworkKernel.sample",
        lambda **options: kernel.sample(torch.ones(3, 2), **options),
        lambda: {"num_functions": 2, "num_units": 4},
        {
            "num_functions": whole(1, 1000),
            "num_units": width,
            "num_outputs": whole(1, 1000),
            "seed": seed,
        },
    )
    yield Call(
        "process_of_network",
        lambda **options: bd.gp.process_of_network("relu", **options).kernel(torch.ones(3, 2)),
        lambda: {"weight_decay": 0.1, "p": 0.1, "num_data": 10, "num_units": 3, "precision": 1.0},
        {
            "weight_decay": several(positive),
            "p": several(rate),
            "num_data": whole(1),
            "num_units": width,
            "precision": positive,
            "draw": lambda v: v is None or seed(v),
        },
    )
    yield Call(
        "GaussianProcess",
        lambda precision: bd.gp.GaussianProcess(bd.gp.NetworkKernel("relu"), precision).log_evidence(
            torch.eye(3), torch.ones(3, 1)
        ),
        lambda: {"precision": 2.0},
        {"precision": positive},
    )


def _files() -> Iterator[Call]:
    folder = Path(tempfile.mkdtemp(prefix="bayesdrop-adversary-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    saved, other = folder / "model.safetensors", folder / "other.safetensors"
    bd.save(_linear(), saved)
    here: Kind = lambda v: isinstance(v, str | Path)  # noqa: E731
    yield Call("save", bd.save, lambda: {"model": _linear(), "path": other}, {"model": module})
    yield Call(
        "save",
        lambda path: bd.save(_linear(), path if not isinstance(path, str) else folder / path),
        lambda: {"path": other},
        {"path": here},
    )
    yield Call("load", bd.load, lambda: {"path": saved}, {"path": nothing, "into": lambda v: v is None})


def _estimators() -> Iterator[Call]:
    est = bd.estimators
    kinds: dict[str, Kind] = {
        "X": anything,
        "y": anything,
        "preset": choice("default", "quick", "gal2016", "gal2018", "two-layers"),
        "method": choice("bernoulli", "concrete", "learnable", "gaussian", "dropconnect", None),
        "hidden": lambda v: v is None or several(whole(1, 10**4))(v),
        "activation": choice("relu", "silu", "gelu", "tanh", None),
        "p": lambda v: v is None or several(rate)(v),
        "input_p": real(0, 1, none=True),
        "length_scale": real(0, closed=False, none=True),
        "scale_by_fan_in": lambda v: v is None or flag(v),
        "temperature": real(0, closed=False, none=True),
        "per_unit": lambda v: v is None or flag(v),
        "bins": whole(0, 1000, none=True),
        "search": choice("preset", "none", "grid", "bayes"),
        "grid": anything,
        "restarts": whole(1, 50, none=True),
        "epochs": whole(1, 100, none=True),
        "batch_size": whole(1, none=True),
        "lr": real(0, closed=False, none=True),
        "schedule": choice("one-cycle", "constant", None),
        "clip_norm": real(0, closed=False, none=True),
        "early_stopping": flag,
        "patience": count,
        "num_draws": whole(1, 10**5, none=True),
        "processes": whole(1, 4),
        "random_state": whole(0, 2**32, none=True),
    }
    for cls, target in ((est.DropoutRegressor, _Y), (est.DropoutClassifier, _Y > 0)):

        def run(cls: Any = cls, target: Any = target, **options: Any) -> Any:
            X, y = options.pop("X", _X), options.pop("y", target)
            small = {
                "preset": "quick",
                "epochs": 2,
                "num_draws": 4,
                "search": "none",
                "restarts": 1,
                "hidden": (4,),
                "random_state": 0,
            }
            made = cls(**small | options).fit(X, y)
            return [np.asarray(made.predict(X)).astype(float)]

        yield Call(f"{cls.__name__}|Settings|Candidate|Recipe|fit", run, dict, kinds)


@cache
def calls() -> tuple[Call, ...]:
    """Every call, right as it stands."""
    parts = (
        _layers,
        _likelihoods,
        _objectives,
        _engine,
        _predictions,
        _metrics,
        _calibrators,
        _acquisition,
        _cascades,
        _autoencoders,
        _attacks,
        _linear_models,
        _networks,
        _files,
        _estimators,
    )
    return tuple(call for part in parts for call in part())


# judging


def _numbers_in(value: Any, depth: int = 0) -> Iterator[np.ndarray[Any, Any]]:
    """All numbers of a result."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value.detach().double().numpy()
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            yield value
    elif isinstance(value, float | np.floating):
        yield np.asarray(value)
    elif isinstance(value, nn.Module):
        for part in (*value.parameters(), *value.buffers()):
            yield from _numbers_in(part)
    elif depth < 4 and isinstance(value, Mapping):
        for part in value.values():
            yield from _numbers_in(part, depth + 1)
    elif depth < 4 and isinstance(value, list | tuple):
        for part in value:
            yield from _numbers_in(part, depth + 1)
    elif isinstance(value, bd.Prediction):
        yield value.mean.numpy()
    elif dataclasses.is_dataclass(value) and depth < 4:
        for field in dataclasses.fields(value):
            yield from _numbers_in(getattr(value, field.name), depth + 1)


def _shown(value: Any) -> str:
    try:
        return repr(value)[:100]
    except Exception as error:  # what cannot be printed is a finding too
        return f"not printable, {type(error).__name__}: {error}"


def judge(call: Call, argument: str, value: Any) -> tuple[str, str]:
    """The outcome of one wrong argument, and what happened."""
    arguments = call.good() | {argument: value}
    torch.manual_seed(0)
    try:
        # A path that is accepted is written to: not here.
        with tempfile.TemporaryDirectory() as folder, chdir(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call.run(**arguments)
    except (ValueError, TypeError, FileNotFoundError, bd.Diverged) as error:
        said = str(error)
        owned = re.match(rf"({'|'.join(map(re.escape, call.owner.split('|')))})\b", said)
        # Of two that do not fit each other, either may be named.
        named = any(re.search(rf"\b{name}\b", said) for name in arguments) or isinstance(error, OSError)
        if call.kinds[argument] is function and callable(value):
            return "refused", "the caller's own function failed"
        told = f"{type(error).__name__}: {said}"
        return ("refused" if owned and named else "wrong"), told
    except Exception as error:  # any other error is a finding
        if call.kinds[argument] is function and callable(value):
            return "refused", "the caller's own function failed"
        return "wrong", f"{type(error).__name__}: {error}"
    if not (call.kinds[argument](value) or (call.optional and value is None)):
        return "wrong", f"accepted: {_shown(result)}"
    if call.kinds[argument] is arithmetic and any(not np.isfinite(part).all() for part in _numbers_in(value)):
        return "right", "NaN or infinity in, and out"
    for numbers in _numbers_in(result):
        if (np.isnan(numbers).any() and not call.unknown) or (np.isinf(numbers).any() and not call.infinite):
            return "wrong", f"not finite: {_shown(result)}"
    return "right", f"{_shown(result)}"


def outcomes(seed: int, count: int) -> Counter[str]:
    """Counts of right, refused and wrong among so many wrong arguments; every wrong one is printed."""
    generator = random.Random(seed)
    table = calls()
    found: Counter[str] = Counter()
    for _ in range(count):
        call = generator.choice(table)
        argument = generator.choice(sorted(call.kinds))
        name = generator.choice(sorted(WRONG))
        outcome, told = judge(call, argument, WRONG[name])
        found[outcome] += 1
        if outcome == "wrong":
            print(f"{call.owner}({argument}={name}) {told}")
    return found
