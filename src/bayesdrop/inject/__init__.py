"""inject(): dropout for a network that was trained without it."""

from bayesdrop.inject.call import inject
from bayesdrop.inject.report import Candidate, Injection

__all__ = ["Candidate", "Injection", "inject"]
