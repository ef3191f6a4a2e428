"""Random numbers: bits, the noises made of them, and noise that a seed, a site and a draw name."""

from bayesdrop.noise.pixels import PixelNoise, PixelSource
from bayesdrop.noise.samplers import KeepNoise, Noise
from bayesdrop.noise.source import NoiseSource, Sampler

__all__ = ["KeepNoise", "Noise", "NoiseSource", "PixelNoise", "PixelSource", "Sampler"]
