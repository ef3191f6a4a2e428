"""What training minimises."""

from bayesdrop.objectives.arm import RowsMeet, arm_loss
from bayesdrop.objectives.negative_elbo import ElboTerms, NegativeELBO
from bayesdrop.objectives.precision import precision_from_weight_decay, weight_decay_from_precision

__all__ = [
    "ElboTerms",
    "NegativeELBO",
    "RowsMeet",
    "arm_loss",
    "precision_from_weight_decay",
    "weight_decay_from_precision",
]
