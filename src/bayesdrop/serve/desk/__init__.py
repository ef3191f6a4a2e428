"""The desk: pages where people label what the model is unsure of."""

from bayesdrop.serve.desk.router import router

__all__ = ["router"]
