"""Layers whose weights are random, and the divergence of each from its prior."""

from bayesdrop.layers.activations import (
    ActivationNoise,
    BernoulliNoise,
    ConcreteNoise,
    GaussianNoise,
    LearnableNoise,
    VariationalGaussianNoise,
)
from bayesdrop.layers.base import StochasticLayer, rates, total_kl
from bayesdrop.layers.bernoulli import BernoulliDropout
from bayesdrop.layers.concrete import ConcreteDropout
from bayesdrop.layers.convert import convert
from bayesdrop.layers.dropconnect import DropConnect
from bayesdrop.layers.frozen import FrozenBatchNorm, freeze_batch_norm
from bayesdrop.layers.gaussian import GaussianDropout
from bayesdrop.layers.learnable import LearnableDropout
from bayesdrop.layers.masksembles import Masksembles
from bayesdrop.layers.mean_field import MeanFieldGaussian
from bayesdrop.layers.mixture import MixtureDropout
from bayesdrop.layers.recurrent import RecurrentDropout
from bayesdrop.layers.scaled import ScaledDropout
from bayesdrop.layers.schedule import RateSchedule, set_rates
from bayesdrop.layers.share import share_rates
from bayesdrop.layers.variational_gaussian import VariationalGaussianDropout

__all__ = [
    "ActivationNoise",
    "BernoulliDropout",
    "BernoulliNoise",
    "ConcreteDropout",
    "ConcreteNoise",
    "DropConnect",
    "FrozenBatchNorm",
    "GaussianDropout",
    "GaussianNoise",
    "LearnableDropout",
    "LearnableNoise",
    "Masksembles",
    "MeanFieldGaussian",
    "MixtureDropout",
    "RateSchedule",
    "RecurrentDropout",
    "ScaledDropout",
    "StochasticLayer",
    "VariationalGaussianDropout",
    "VariationalGaussianNoise",
    "convert",
    "freeze_batch_norm",
    "rates",
    "set_rates",
    "share_rates",
    "total_kl",
]
