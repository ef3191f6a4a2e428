"""Functions that build networks, and weights from files for them."""

from bayesdrop.models.cosine import Cosine, random_phases
from bayesdrop.models.fc_densenet import fc_densenet
from bayesdrop.models.lenet import lenet
from bayesdrop.models.mlp import mlp
from bayesdrop.models.shapes import DenseBlock, UShape
from bayesdrop.models.unet import unet
from bayesdrop.models.vgg import vgg
from bayesdrop.models.weights import load_weights

__all__ = [
    "Cosine",
    "DenseBlock",
    "UShape",
    "fc_densenet",
    "lenet",
    "load_weights",
    "mlp",
    "random_phases",
    "unet",
    "vgg",
]
