"""load_model(): the model that a command line names."""

from __future__ import annotations

from pathlib import Path

from bayesdrop.serve.served.base import ServedModel
from bayesdrop.serve.served.images import ServedImages, is_image_model
from bayesdrop.serve.served.modules import ServedModule
from bayesdrop.serve.served.tables import ServedTable
from bayesdrop.serve.settings import ServeSettings

__all__ = ["load_model"]


def load_model(settings: ServeSettings, folder: Path | None = None) -> ServedModel:
    """The model that the settings name, or a later version of it.

    Args:
        settings: of the server.
        folder: of the version; the model itself if None.
    """
    draws, above = settings.num_draws, settings.defer_above
    if folder is None and settings.is_code:
        return ServedModule(
            settings.model,
            likelihood=settings.likelihood,
            num_draws=draws,
            level=settings.level,
            defer_above=above,
        )
    folder = Path(settings.model) if folder is None else folder
    if is_image_model(folder):
        return ServedImages(folder, num_draws=draws, max_pixels=settings.max_pixels, defer_above=above)
    return ServedTable(folder, num_draws=draws, level=settings.level)
