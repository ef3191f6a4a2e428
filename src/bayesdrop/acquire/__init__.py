"""Active learning: scores of rows without labels, and the choice of rows to label next."""

from bayesdrop.acquire.batch import Batch, batch_bald
from bayesdrop.acquire.scores import bald, entropy, mean_std, random, variation_ratio, zero_one
from bayesdrop.acquire.select import select

__all__ = [
    "Batch",
    "bald",
    "batch_bald",
    "entropy",
    "mean_std",
    "random",
    "select",
    "variation_ratio",
    "zero_one",
]
