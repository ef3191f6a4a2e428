"""Serving a model that knows when to ask, and the desk of the people it asks."""

from bayesdrop.serve.served.images import ImageModel, load_image_model, save_image_model
from bayesdrop.serve.settings import ServeSettings

__all__ = ["ImageModel", "ServeSettings", "load_image_model", "save_image_model"]
