"""Mean and variance of a model's output without draws."""

from bayesdrop.predict.moments.walk import FOLLOWED, RULES, bytes_needed, moments_of_tape

__all__ = ["FOLLOWED", "RULES", "bytes_needed", "moments_of_tape"]
