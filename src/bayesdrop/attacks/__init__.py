"""Adversarial attacks: small changes of inputs that make a model wrong, with or without regard to dropout."""

from bayesdrop.attacks.gradient import Goal, Through, loss_gradient
from bayesdrop.attacks.steps import fgsm, pgd

__all__ = ["Goal", "Through", "fgsm", "loss_gradient", "pgd"]
