"""Plain factories that return an nn.Module."""

from bayesdrop.models.lenet import lenet
from bayesdrop.models.mlp import mlp

__all__ = ["lenet", "mlp"]
