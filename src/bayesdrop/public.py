"""The public names of bayesdrop, all in one place."""

from bayesdrop import functional, layers, likelihoods, metrics, models, objectives
from bayesdrop.audit import Audit, audit
from bayesdrop.cascade import Cascade, Cascaded, cascade
from bayesdrop.errors import Diverged, NoRandomness
from bayesdrop.export import CannotExport, Exported, export
from bayesdrop.fit import History, RandomCrop, RandomFlip, fit
from bayesdrop.inject import Injection, inject
from bayesdrop.layers import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    GaussianDropout,
    LearnableDropout,
    Masksembles,
    MeanFieldGaussian,
    MixtureDropout,
    RateSchedule,
    RecurrentDropout,
    ScaledDropout,
    StochasticLayer,
    VariationalGaussianDropout,
    convert,
    rates,
    set_rates,
    share_rates,
    total_kl,
)
from bayesdrop.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Laplace,
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
from bayesdrop.predict import Compiled, NotFinite, PartlyRandom, Prediction, compile, predict
from bayesdrop.scoring import Scorer
from bayesdrop.storage import load, save
from bayesdrop.trace import FunctionDraw
from bayesdrop.version import __version__

__all__ = [
    "Audit",
    "Bernoulli",
    "BernoulliDropout",
    "CannotExport",
    "Cascade",
    "Cascaded",
    "Categorical",
    "Compiled",
    "ConcreteDropout",
    "Diverged",
    "DropConnect",
    "ElboTerms",
    "Exported",
    "FunctionDraw",
    "Gaussian",
    "GaussianDropout",
    "HeteroscedasticGaussian",
    "History",
    "Injection",
    "Laplace",
    "LearnableDropout",
    "Likelihood",
    "Masksembles",
    "MeanFieldGaussian",
    "MixtureDropout",
    "Multinomial",
    "NegativeELBO",
    "NoRandomness",
    "NotFinite",
    "PartlyRandom",
    "Prediction",
    "RandomCrop",
    "RandomFlip",
    "RateSchedule",
    "RecurrentDropout",
    "ScaledDropout",
    "Scorer",
    "StochasticLayer",
    "VariationalGaussianDropout",
    "__version__",
    "arm_loss",
    "audit",
    "cascade",
    "compile",
    "convert",
    "export",
    "fit",
    "functional",
    "inject",
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
    "set_rates",
    "share_rates",
    "total_kl",
    "weight_decay_from_precision",
]
