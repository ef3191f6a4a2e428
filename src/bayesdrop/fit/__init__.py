"""The one training loop."""

from bayesdrop.fit.augment import RandomCrop, RandomFlip
from bayesdrop.fit.history import History
from bayesdrop.fit.loop import fit

__all__ = ["History", "RandomCrop", "RandomFlip", "fit"]
