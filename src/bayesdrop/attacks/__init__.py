"""Inputs changed a little, on purpose, to make a model wrong: attacks that know of dropout, or do not."""

from bayesdrop.attacks.gradient import Goal, Through, loss_gradient
from bayesdrop.attacks.steps import fgsm, pgd

__all__ = ["Goal", "Through", "fgsm", "loss_gradient", "pgd"]
