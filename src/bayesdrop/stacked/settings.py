"""Settings: how one network of a stack is built and trained."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from bayesdrop.errors import (
    is_one_of,
    layer_widths,
    must,
    must_be_flag,
    real_number,
    real_numbers,
    whole_number,
)

__all__ = ["SIGMA", "Activation", "FirstWeights", "Method", "NoiseModel", "Schedule", "Settings"]

Method = Literal[
    "bernoulli", "concrete", "learnable", "gaussian", "dropconnect", "mixture", "variational", "meanfield"
]
NoiseModel = Literal["fixed", "map", "learned", "heteroscedastic", "classes", "labels"]
Activation = Literal["relu", "silu", "gelu", "tanh"]
Schedule = Literal["one-cycle", "constant"]
FirstWeights = Literal["linear", "glorot"]
#: width of the Gaussians of "mixture", as `MixtureDropout` has it
SIGMA = 0.01


@dataclass(frozen=True)
class Settings:
    """How one network is built and trained.

    Networks share a stack if they agree in `hidden`, `activation`, `method`, `noise`, `batch_size`,
    `temperature` and `per_unit`, in which of their rates are 0, and in the shape of their data; all other
    settings may differ.

    Args:
        hidden: width of every hidden layer.
        activation: the non-linearity between layers.
        method: the posterior, named as in `convert`: "bernoulli", "concrete", "learnable", "gaussian",
            "dropconnect", "mixture" (of width 0.01), "variational" or "meanfield".
        noise: "fixed", "map" (its mode under a Gamma prior, in closed form, once an epoch), "learned" or
            "heteroscedastic" Gaussian noise, "classes", or "labels" (a yes or no for each).
        p: chance of dropping hidden units, or where learned rates (and widths, with "meanfield") start: one
            number, or one per hidden layer.
        input_p: the same for inputs. A rate of exactly 0 stays 0, whatever the method: no noise there.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        noise_std: standard deviation of a fixed noise in the units of y, or where other noise starts; 1 if
            None. In a recipe, a fixed noise that is None and chosen by held-out rows is a tenth of the
            targets' spread during training, so that the prior weighs the same whatever their unit.
        noise_pace: how far the log of a "map" noise may move during training, at most an equal share of it
            in each epoch; one last M-step then sets the noise freely. Noise that starts high thus stays high
            while the weights are trained: a flexible network does not fit few rows exactly, and the noise
            does not vanish with its errors. `history["noise_std"]` holds it. No limit if None.
        temperature: of the concrete relaxation.
        per_unit: learn a rate for every unit instead of every layer.
        first_weights: "linear", as `nn.Linear` has them: U(-1, 1) / sqrt(K_in), biases too; or "glorot":
            U(-1, 1) sqrt(6 / (K_in + K_out)) and biases of 0.
        epochs: passes over the data.
        batch_size: rows of a step.
        lr: learning rate, the largest of the cycle with "one-cycle".
        rate_lr: learning rate of drop rates, and of the logs of widths; 10 lr if None.
        schedule: "one-cycle" (rising for 30 % of the steps, then falling to nearly 0, by cosines) or
            "constant".
        clip_norm: largest norm of a network's gradient.
        patience: checks without a better validation log-likelihood before the network stops; needs
            validation rows. The best weights are put back.
        check_every: epochs from one check to the next.
        validation_draws: draws of the log-likelihood on validation rows.
    """

    hidden: tuple[int, ...] = (50, 50)
    activation: Activation = "relu"
    method: Method = "bernoulli"
    noise: NoiseModel = "heteroscedastic"
    p: float | tuple[float, ...] = 0.05
    input_p: float = 0.0
    length_scale: float = 1e-2
    scale_by_fan_in: bool = False
    noise_std: float | None = None
    noise_pace: float | None = None
    temperature: float = 0.1
    per_unit: bool = False
    first_weights: FirstWeights = "linear"
    epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-2
    rate_lr: float | None = None
    schedule: Schedule = "one-cycle"
    clip_norm: float | None = None
    patience: int | None = None
    check_every: int = 10
    validation_draws: int = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", layer_widths("Settings", self.hidden))
        rates = real_numbers(
            "Settings", "p", self.p, "in [0, 1), one number or one per hidden layer"
        ).tolist()
        object.__setattr__(self, "p", tuple(rates) if isinstance(rates, list) else rates)
        # A larger rate is 1 in single precision, and noise, which is divided by 1 - p, infinite.
        most = 1 - 1e-7
        input_p = real_number("Settings", "input_p", self.input_p, "in [0, 1)", at_least=0, at_most=most)
        object.__setattr__(self, "input_p", input_p)
        must_be_flag("Settings", scale_by_fan_in=self.scale_by_fan_in, per_unit=self.per_unit)
        for name, options in _CHOICES.items():
            if not is_one_of(getattr(self, name), options):
                want = f"one of {', '.join(map(repr, options))}"
                raise ValueError(must("Settings", name, want, getattr(self, name)))
        if isinstance(self.p, tuple) and len(self.p) != len(self.hidden):
            want = f"one number or one per hidden layer ({len(self.hidden)})"
            raise ValueError(must("Settings", "p", want, self.p))
        if not all(0 <= rate <= most for rate in self.rates):
            raise ValueError(must("Settings", "p and input_p", "in [0, 1)", self.rates))
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(
                    self, name, real_number("Settings", name, value, "a positive number", above=0)
                )
        for name in ("length_scale", "temperature"):
            # Squares and quotients of such numbers are neither 0 nor infinite in single precision.
            want = "a positive number, from 1e-15 to 1e15"
            real_number("Settings", name, getattr(self, name), want, at_least=1e-15, at_most=1e15)
        if self.noise_pace is not None and self.noise != "map":
            raise ValueError(must("Settings", "noise_pace", "None unless noise='map'", self.noise_pace))
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, whole_number("Settings", name, value, at_least=1))

    @property
    def rates(self) -> tuple[float, ...]:
        """Chance of dropping the inputs of every weight layer, or where learned rates start."""
        hidden = self.p if isinstance(self.p, tuple) else (float(self.p),) * len(self.hidden)
        return (float(self.input_p), *hidden)

    @property
    def first_noise_std(self) -> float:
        """`noise_std`, or 1."""
        return 1.0 if self.noise_std is None else self.noise_std

    @property
    def learns_rates(self) -> bool:
        """Whether drop rates are parameters."""
        return self.method in ("concrete", "learnable", "variational")

    @property
    def has_normal_noise(self) -> bool:
        """Whether noise is made of normal numbers rather than of random bits."""
        return self.method in ("gaussian", "mixture", "variational", "meanfield")

    @property
    def has_widths(self) -> bool:
        """Whether weights and biases have Gaussian noise whose width does not follow from their size."""
        return self.method in ("meanfield", "mixture")

    @property
    def stack_key(self) -> tuple[Any, ...]:
        """What networks of one stack have in common."""
        dropped = tuple(rate > 0 for rate in self.rates)
        common = (self.hidden, self.activation, self.method, self.noise, self.batch_size)
        return (*common, self.temperature, self.per_unit, dropped)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


_CHOICES: dict[str, tuple[str, ...]] = {
    "method": get_args(Method),
    "noise": get_args(NoiseModel),
    "activation": get_args(Activation),
    "schedule": get_args(Schedule),
    "first_weights": get_args(FirstWeights),
}
_POSITIVE = ("length_scale", "noise_std", "noise_pace", "temperature", "lr", "rate_lr", "clip_norm")
_COUNTS = ("epochs", "batch_size", "patience", "check_every", "validation_draws")
