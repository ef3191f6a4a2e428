"""Plots of predictions and of results of `metrics`: functions from matplotlib axes and these to the axes."""

from bayesdrop.plots.acquisition import plot_acquisition
from bayesdrop.plots.calibrated import plot_calibration, plot_reliability
from bayesdrop.plots.classes import plot_class_draws, plot_class_uncertainty, plot_spread
from bayesdrop.plots.curves import plot_bands, plot_draws, plot_points
from bayesdrop.plots.estimates import plot_estimates
from bayesdrop.plots.figure import check_picture_path, figure_bytes, inline_svg, new_figure, save_figure
from bayesdrop.plots.images import plot_image_grid, plot_images
from bayesdrop.plots.outside import plot_roc, plot_score_histograms
from bayesdrop.plots.parts import plot_uncertainty_parts
from bayesdrop.plots.promises import binomial_band, plot_promise
from bayesdrop.plots.rates import plot_rates
from bayesdrop.plots.relaxed import plot_relaxed_mask
from bayesdrop.plots.residuals import plot_intervals, plot_predicted, plot_residuals
from bayesdrop.plots.runs import plot_runs
from bayesdrop.plots.segmentation import plot_segmentation
from bayesdrop.plots.selective import plot_risk_coverage
from bayesdrop.plots.style import COLORS, finish_axes

__all__ = [
    "COLORS",
    "binomial_band",
    "check_picture_path",
    "figure_bytes",
    "finish_axes",
    "inline_svg",
    "new_figure",
    "plot_acquisition",
    "plot_bands",
    "plot_calibration",
    "plot_class_draws",
    "plot_class_uncertainty",
    "plot_draws",
    "plot_estimates",
    "plot_image_grid",
    "plot_images",
    "plot_intervals",
    "plot_points",
    "plot_predicted",
    "plot_promise",
    "plot_rates",
    "plot_relaxed_mask",
    "plot_reliability",
    "plot_residuals",
    "plot_risk_coverage",
    "plot_roc",
    "plot_runs",
    "plot_score_histograms",
    "plot_segmentation",
    "plot_spread",
    "plot_uncertainty_parts",
    "save_figure",
]
