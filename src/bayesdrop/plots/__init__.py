"""Pictures of predictions: axes and a `Prediction` in, axes out."""

from bayesdrop.plots.curves import plot_bands, plot_draws, plot_points
from bayesdrop.plots.figure import check_picture_path, new_figure, save_figure

__all__ = ["check_picture_path", "new_figure", "plot_bands", "plot_draws", "plot_points", "save_figure"]
