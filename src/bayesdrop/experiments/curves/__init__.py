"""Functions of one input, learned by deep dropout networks and by a Gaussian process.

What the experiments on carbon dioxide and on solar irradiance share: the series, the networks and how they
are trained, the process, what is measured, and when two models count as the same.
"""
