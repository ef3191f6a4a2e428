"""Data sets: one file each."""

from bayesdrop.data.co2 import CO2Series, load_co2

__all__ = ["CO2Series", "load_co2"]
