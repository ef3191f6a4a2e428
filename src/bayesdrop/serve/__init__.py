"""Serving a model that knows when to ask, and the desk of the people it asks."""

from bayesdrop.serve.settings import Settings

__all__ = ["Settings"]
