"""Recommenders: who chose what, and how sure one can be of what they may choose next."""

from bayesdrop.recommend.base import Recommendations, Recommender
from bayesdrop.recommend.interactions import HeldOutUsers, Interactions, UserSplit
from bayesdrop.recommend.neighbours import EASE, SLIM, Popularity

__all__ = [
    "EASE",
    "SLIM",
    "HeldOutUsers",
    "Interactions",
    "Popularity",
    "Recommendations",
    "Recommender",
    "UserSplit",
]
