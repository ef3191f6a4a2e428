"""Recommenders: models of which items users choose next, with the uncertainty of their scores."""

from bayesdrop.recommend.als import ImplicitALS
from bayesdrop.recommend.base import Recommendations, Recommender
from bayesdrop.recommend.blend import Blend, default_models
from bayesdrop.recommend.evaluate import evaluate_lists
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions, UserSplit
from bayesdrop.recommend.neighbours import EASE, SLIM, Popularity
from bayesdrop.recommend.priors import IAFVAE, VampVAE
from bayesdrop.recommend.sivae import SIVAE
from bayesdrop.recommend.vae import CDAE, MultDAE, MultVAE

__all__ = [
    "CDAE",
    "EASE",
    "IAFVAE",
    "SIVAE",
    "SLIM",
    "Blend",
    "HeldOutUsers",
    "ImplicitALS",
    "Interactions",
    "MultDAE",
    "MultVAE",
    "Popularity",
    "Recommendations",
    "Recommender",
    "UserSplit",
    "VampVAE",
    "default_models",
    "evaluate_lists",
]
