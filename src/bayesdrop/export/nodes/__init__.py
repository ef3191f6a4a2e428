"""What torch's functions are in ONNX: one small function for each, in tables by their names."""

from bayesdrop.export.nodes import elementwise, layers, products, recurrent, reductions, shapes
from bayesdrop.export.nodes.graph import (
    DTYPES,
    IR_VERSION,
    OPSET,
    CannotExport,
    Handle,
    Weights,
    Writer,
)
from bayesdrop.export.nodes.products import turned

__all__ = [
    "DTYPES",
    "IR_VERSION",
    "OPSET",
    "CannotExport",
    "Handle",
    "Weights",
    "Writer",
    "elementwise",
    "layers",
    "products",
    "recurrent",
    "reductions",
    "shapes",
    "turned",
]
