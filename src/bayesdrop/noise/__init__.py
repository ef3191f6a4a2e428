"""Random numbers: bits, the noise made of them, and noise that (seed, site, draw) determine."""

from bayesdrop.noise.pixels import PixelNoise, PixelSource
from bayesdrop.noise.samplers import KeepNoise, Noise
from bayesdrop.noise.source import NoiseSource, Sampler

__all__ = ["KeepNoise", "Noise", "NoiseSource", "PixelNoise", "PixelSource", "Sampler"]
