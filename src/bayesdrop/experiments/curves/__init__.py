"""Functions of one input, learned by deep dropout networks and by a Gaussian process.

What the experiments on carbon dioxide and on solar irradiance share: the series, the networks, their
training, and the panels of the pictures.
"""
