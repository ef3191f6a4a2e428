"""Noise that stands alone: a module that multiplies activations, wherever `nn.Dropout` can be used.

The other layers of this package put noise on the inputs of a linear map, which makes its weights random.
Where a norm, a sum or a concatenation comes before the next weights, as in DenseNets, U-Nets and
transformers, the noise is a separate module. It does not know the weights that it makes random, so that its
divergence is that of the masks alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bayesdrop.layers.base import StochasticLayer
from bayesdrop.layers.bernoulli import BernoulliDropout
from bayesdrop.layers.concrete import ConcreteDropout, Masks
from bayesdrop.layers.gaussian import GaussianDropout
from bayesdrop.layers.learnable import LearnableDropout
from bayesdrop.layers.learned_rate import InitialRate, Per
from bayesdrop.layers.variational_gaussian import VariationalGaussianDropout
from bayesdrop.layers.weights import Units

__all__ = [
    "ActivationNoise",
    "BernoulliNoise",
    "ConcreteNoise",
    "GaussianNoise",
    "LearnableNoise",
    "VariationalGaussianNoise",
]


class ActivationNoise(StochasticLayer):
    """Noise that multiplies its input: the base of the modules below.

    In `eval()` the output is the input itself. A module that is used at several places of a network has the
    same noise at all of them in a draw: make one module for each place.
    """

    layer: Units

    @property
    def num_units(self) -> int:
        """K, the number of units or channels."""
        return self.layer.num_units

    @property
    def axis(self) -> int:
        """The axis of the input that holds the units."""
        return self.layer.axis


class BernoulliNoise(ActivationNoise, BernoulliDropout):
    """Units that are dropped with chance p: x * z / (1 - p), z_k = 0 with chance p, else 1.

    Like `nn.Dropout` (with `elementwise`) and `nn.Dropout1d/2d/3d` (whole channels). The divergence is
    -sum_k H(p_k), a constant.

    Args:
        num_units: K, the features or channels of the input.
        p: chance of dropping, in [0, 1): one number, or one per unit.
        axis: the axis of the input that holds the units: 1 for (N, K) and images (N, K, H, W), -1 for
            (N, L, K).
        elementwise: each position has its own noise, as in `nn.Dropout`.

    Shape: any, with K units on the axis; rows are on axis 0.

    >>> import torch
    >>> BernoulliNoise(8, 0.2)(torch.ones(2, 8, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    def __init__(
        self,
        num_units: int,
        p: float | Sequence[float] | Tensor = 0.1,
        *,
        axis: int = 1,
        elementwise: bool = False,
    ) -> None:
        units = Units(type(self).__name__, num_units, axis)
        BernoulliDropout.__init__(self, units, p, elementwise=elementwise)


class GaussianNoise(ActivationNoise, GaussianDropout):
    """Units that are multiplied by N(1, p / (1 - p)), the mean and variance of dropout at the rate p.

    The divergence is 0: a divergence of weights would depend on their size, which is not known here, and the
    noise itself has nothing to learn. `VariationalGaussianNoise` learns its variance.

    Args:
        num_units: K, the features or channels of the input.
        p: the drop rate whose variance is matched, in [0, 1): one number, or one per unit.
        axis: the axis of the input that holds the units.
        elementwise: each position has its own noise.
    """

    def __init__(
        self,
        num_units: int,
        p: float | Sequence[float] | Tensor = 0.1,
        *,
        axis: int = 1,
        elementwise: bool = False,
    ) -> None:
        units = Units(type(self).__name__, num_units, axis)
        GaussianDropout.__init__(self, units, p, elementwise=elementwise)

    def kl(self, length_scale: float | None = None) -> Tensor:
        """0, shape ()."""
        return self.p.new_zeros(())


class ConcreteNoise(ActivationNoise, ConcreteDropout):
    """Units that are dropped at a rate that is learned, through a relaxation of the mask.

    The divergence is -sum_k H(p), K times the negative entropy of one unit's mask. Divided by num_data, it
    pulls the rate towards 1/2, against the likelihood of the data. The prior of the weights has no part in it
    (in `ConcreteDropout` that part is l^2 |W_k|^2 / (2 (1 - p)), which is small at the usual l): use weight
    decay for the weights.

    Args:
        num_units: K, the features or channels of the input.
        p_init: where the rate starts, in (0, 1): a number, a range (low, high), or a tensor with one for
            each unit.
        axis: the axis of the input that holds the units.
        temperature: of the relaxation, see `ConcreteDropout`.
        masks: "hard", "relaxed" or "straight-through", see `ConcreteDropout`.
        per: one rate for the "layer" or one for each "unit".
        elementwise: each position has its own noise. The divergence still counts units, not positions.

    Reference: Gal, Hron & Kendall (2017), Eqs 3 to 5.
    """

    def __init__(
        self,
        num_units: int,
        p_init: InitialRate = 0.1,
        *,
        axis: int = 1,
        temperature: float = 0.1,
        masks: Masks = "hard",
        per: Per = "layer",
        elementwise: bool = False,
    ) -> None:
        units = Units(type(self).__name__, num_units, axis)
        ConcreteDropout.__init__(
            self, units, p_init, temperature=temperature, masks=masks, per=per, elementwise=elementwise
        )


class LearnableNoise(ActivationNoise, LearnableDropout):
    """Units that are dropped by true Bernoulli masks at rates that are learned.

    Gradients of the rates come from `NegativeELBO` or `arm_loss`, as those of `LearnableDropout`. The
    divergence is -sum_k H(p_k), that of the masks alone; see `ConcreteNoise`.

    Args:
        num_units: K, the features or channels of the input.
        p_init: where the rates start, in (0, 1): a number, a range (low, high), or a tensor with one for
            each unit.
        axis: the axis of the input that holds the units.
        per: one rate for each "unit" or one for the "layer".
        elementwise: each position has its own noise.

    Reference: Boluki et al. (2020), Eqs 2, 3, 7 and 8.
    """

    def __init__(
        self,
        num_units: int,
        p_init: InitialRate = 0.1,
        *,
        axis: int = 1,
        per: Per = "unit",
        elementwise: bool = False,
    ) -> None:
        units = Units(type(self).__name__, num_units, axis)
        LearnableDropout.__init__(self, units, p_init, per=per, elementwise=elementwise)


class VariationalGaussianNoise(ActivationNoise, VariationalGaussianDropout):
    """Units that are multiplied by N(1, a), a = p / (1 - p) learned under a log-uniform prior.

    The divergence does not depend on the weights' size: it is that of
    `VariationalGaussianDropout(noise="inputs")`, where its limits are described. All positions of a unit
    have the same noise.

    Args:
        num_units: K, the features or channels of the input.
        p_init: where p = a / (1 + a) starts, in (0, 1).
        axis: the axis of the input that holds the units.
        per: one variance for the "layer" or one for each "unit".
        capped: a at most 1.
    """

    def __init__(
        self,
        num_units: int,
        p_init: float = 0.1,
        *,
        axis: int = 1,
        per: Per = "layer",
        capped: bool = False,
    ) -> None:
        units = Units(type(self).__name__, num_units, axis)
        VariationalGaussianDropout.__init__(self, units, p_init, noise="inputs", per=per, capped=capped)
