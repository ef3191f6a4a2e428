"""Models that are served: tables, images, and any module of torch, all asked in the same way."""

from bayesdrop.serve.served.answers import Answers, Ask
from bayesdrop.serve.served.base import BadRow, ServedModel, TensorSpec

__all__ = ["Answers", "Ask", "BadRow", "ServedModel", "TensorSpec"]
