"""Fits to the UCI regression sets that the tables of 2016 and 2017 share, and how they are shown."""
