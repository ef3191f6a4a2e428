"""Variational autoencoders for any encoder, decoder and likelihood; posteriors mixed over masks."""

from bayesdrop.vae.autoencoder import VAE
from bayesdrop.vae.bound import BoundTerms
from bayesdrop.vae.flow import IAF
from bayesdrop.vae.objective import NegativeBound
from bayesdrop.vae.priors import Prior, StandardNormal, VampPrior
from bayesdrop.vae.semi_implicit import SIVAE

__all__ = ["IAF", "SIVAE", "VAE", "BoundTerms", "NegativeBound", "Prior", "StandardNormal", "VampPrior"]
