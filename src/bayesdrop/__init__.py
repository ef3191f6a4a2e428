"""bayesdrop: honest uncertainty for any PyTorch network through Bayesian dropout."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from bayesdrop import functional, layers, likelihoods, metrics, models, objectives
from bayesdrop.audit import Audit, audit
from bayesdrop.draws import FunctionDraw
from bayesdrop.errors import Diverged, MissingExtra, NoRandomness
from bayesdrop.fit import History, fit
from bayesdrop.layers import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    GaussianDropout,
    LearnableDropout,
    MixtureDropout,
    RecurrentDropout,
    StochasticLayer,
    VariationalGaussianDropout,
    convert,
    rates,
    share_rates,
    total_kl,
)
from bayesdrop.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Multinomial,
)
from bayesdrop.objectives import (
    ElboTerms,
    NegativeELBO,
    arm_loss,
    precision_from_weight_decay,
    weight_decay_from_precision,
)
from bayesdrop.predict import NotFinite, PartlyRandom, Prediction, predict
from bayesdrop.storage import load, save
from bayesdrop.version import __version__

if TYPE_CHECKING:
    from bayesdrop import acquire as acquire
    from bayesdrop import calibration as calibration
    from bayesdrop import data as data
    from bayesdrop import estimators as estimators
    from bayesdrop import experiments as experiments
    from bayesdrop import gp as gp
    from bayesdrop import linear as linear
    from bayesdrop import plots as plots
    from bayesdrop import stacked as stacked
    from bayesdrop import tables as tables

__all__ = [
    "Audit",
    "Bernoulli",
    "BernoulliDropout",
    "Categorical",
    "ConcreteDropout",
    "Diverged",
    "DropConnect",
    "ElboTerms",
    "FunctionDraw",
    "Gaussian",
    "GaussianDropout",
    "HeteroscedasticGaussian",
    "History",
    "LearnableDropout",
    "Likelihood",
    "MixtureDropout",
    "Multinomial",
    "NegativeELBO",
    "NoRandomness",
    "NotFinite",
    "PartlyRandom",
    "Prediction",
    "RecurrentDropout",
    "StochasticLayer",
    "VariationalGaussianDropout",
    "__version__",
    "arm_loss",
    "audit",
    "convert",
    "fit",
    "functional",
    "layers",
    "likelihoods",
    "load",
    "metrics",
    "models",
    "objectives",
    "precision_from_weight_decay",
    "predict",
    "rates",
    "save",
    "share_rates",
    "total_kl",
    "weight_decay_from_precision",
]

#: packages that are imported when they are asked for, as `bayesdrop.plots`, and the extra that each needs
_ON_DEMAND = {
    "acquire": None,
    "calibration": None,
    "data": None,
    "estimators": "sklearn",
    "experiments": None,
    "gp": None,
    "linear": "sklearn",
    "plots": None,
    "stacked": None,
    "tables": "tables",
}


if not TYPE_CHECKING:  # a checker knows the names from above, and finds those that are misspelt

    def __getattr__(name: str) -> ModuleType:
        if name not in _ON_DEMAND:
            raise AttributeError(f"module 'bayesdrop' has no attribute {name!r}")
        try:
            return importlib.import_module(f"bayesdrop.{name}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("bayesdrop"):
                raise
            raise MissingExtra.of(f"bayesdrop.{name}", error.name, _ON_DEMAND[name] or "all") from error


def __dir__() -> list[str]:
    return sorted({*__all__, *_ON_DEMAND})
