"""Draws of a model as a file that runs without this library."""

from bayesdrop.export.call import Exported, export
from bayesdrop.export.nodes import CannotExport

__all__ = ["CannotExport", "Exported", "export"]
