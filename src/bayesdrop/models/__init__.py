"""Plain factories that return an nn.Module."""

from bayesdrop.models.mlp import mlp

__all__ = ["mlp"]
