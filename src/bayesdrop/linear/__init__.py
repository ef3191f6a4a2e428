"""Bayesian dropout in closed form: linear models without sampling (needs the extra "sklearn")."""

from bayesdrop.linear.classifier import BayesianDropoutClassifier
from bayesdrop.linear.path import DropoutPath, dropout_path
from bayesdrop.linear.posterior import LowRankCovariance, PosteriorDraws
from bayesdrop.linear.regression import BayesianDropoutRegression
from bayesdrop.linear.rule import DropPerturbation, dropout_log_posterior

__all__ = [
    "BayesianDropoutClassifier",
    "BayesianDropoutRegression",
    "DropPerturbation",
    "DropoutPath",
    "LowRankCovariance",
    "PosteriorDraws",
    "dropout_log_posterior",
    "dropout_path",
]
