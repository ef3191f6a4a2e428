"""The first five minutes: one network on the Mauna Loa record, with its uncertainty and without."""

from bayesdrop.demo.experiment import DemoConfig, DemoResult, Score, run_demo
from bayesdrop.demo.picture import draw_demo
from bayesdrop.demo.report import print_report

__all__ = ["DemoConfig", "DemoResult", "Score", "draw_demo", "print_report", "run_demo"]
