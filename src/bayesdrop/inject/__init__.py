"""inject(): dropout for a network that was trained without it."""

from bayesdrop.inject.call import inject
from bayesdrop.inject.report import Injection, TriedNoise

__all__ = ["Injection", "TriedNoise", "inject"]
