"""The Gaussian process that a dropout network approximates."""

from bayesdrop.gp.kernel import FiniteKernel, NetworkKernel
from bayesdrop.gp.link import length_scale_from_weight_decay, process_of_network
from bayesdrop.gp.moments import second_moment
from bayesdrop.gp.process import GaussianProcess

__all__ = [
    "FiniteKernel",
    "GaussianProcess",
    "NetworkKernel",
    "length_scale_from_weight_decay",
    "process_of_network",
    "second_moment",
]
