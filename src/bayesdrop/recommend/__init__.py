"""Recommenders: who chose what, and how sure one can be of what they may choose next."""

from bayesdrop.recommend.base import Recommendations, Recommender
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
    "HeldOutUsers",
    "Interactions",
    "MultDAE",
    "MultVAE",
    "Popularity",
    "Recommendations",
    "Recommender",
    "UserSplit",
    "VampVAE",
]
