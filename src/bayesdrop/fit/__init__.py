"""The one training loop."""

from bayesdrop.fit.history import History
from bayesdrop.fit.loop import fit

__all__ = ["History", "fit"]
