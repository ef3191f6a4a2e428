"""Categorical and multinomial likelihoods: the output holds logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_finite, must_be_flag, must_be_tensor, real_number, whole_number
from bayesdrop.likelihoods.base import ClassLikelihood

__all__ = ["Categorical", "Multinomial", "SoftmaxLikelihood"]


class SoftmaxLikelihood(ClassLikelihood):
    """A likelihood over classes that exclude each other: a softmax over one axis of the output.

    Args:
        class_axis: the axis of the logits; None for axis 1 of outputs (N, K), (N, K, H, W) and
            (N, K, D, H, W), as in `torch.nn.functional.cross_entropy`. For outputs of three axes it must be
            given, as some libraries put the classes on axis 1 and others on axis -1.
    """

    def __init__(self, *, class_axis: int | None = None) -> None:
        super().__init__()
        owner = type(self).__name__
        if class_axis is not None:
            class_axis = whole_number(owner, "class_axis", class_axis, at_least=-64, at_most=64)
        if class_axis == 0:
            want = "an axis other than 0, as 1 or -1, or None"
            raise ValueError(must(owner, "class_axis", want, class_axis))
        self.class_axis = class_axis

    def extra_repr(self) -> str:
        """The axis, for `print`."""
        return "" if self.class_axis is None else f"class_axis={self.class_axis}"

    def axis_in(self, shape: tuple[int, ...] | torch.Size) -> int:
        """The class axis of an output of this shape, counted from 0; raise where it has none.

        >>> Categorical(class_axis=-1).axis_in((8, 12, 5))
        2
        """
        owner, dims, axis = type(self).__name__, len(shape), self.class_axis
        if axis is None and dims == 3:
            hint = (
                "It may hold its classes on axis 1 or -1: pass class_axis=-1 for (N, L, K), as sequence "
                "models of L tokens give it, or class_axis=1 for (N, K, L), as torch's cross_entropy has it."
            )
            want = "given for an output of three axes"
            raise ValueError(must(owner, "class_axis", want, tuple(shape), hint))
        axis = 1 if axis is None else axis
        if dims < 2 or not -dims < axis < dims:
            raise ValueError(must(owner, "output", f"logits with classes on axis {axis}", tuple(shape)))
        if shape[axis] < 2:
            hint = "One logit has probability 1 whatever it is: Bernoulli() is for a logit each output."
            raise ValueError(must(owner, "output", "logits of at least 2 classes", tuple(shape), hint))
        return axis % dims

    def class_log_probs(self, output: Tensor, *, leading: int = 0) -> Tensor:
        """Log-softmax, classes on the last axis."""
        must_be_tensor(type(self).__name__, "output", output, floating=True)
        axis = self.axis_in(output.shape[leading:]) + leading
        return torch.log_softmax(output, axis).movedim(axis, -1)

    def laid_out(self, by_class: Tensor) -> Tensor:
        """The classes back on their axis."""
        return by_class.movedim(-1, 1 if self.class_axis is None else self.class_axis)

    def output_of(self, class_log_probs: Tensor) -> Tensor:
        """The log-probabilities are logits."""
        return self.laid_out(class_log_probs)


class Categorical(SoftmaxLikelihood):
    """y ~ Categorical(softmax(tau f)); -log p is the cross-entropy.

    The precision tau is 1 by default. It corresponds to the noise precision of a `Gaussian`: with the same
    prior on the weights, the data count more for a larger tau.

    Args:
        precision: tau, above 0, or where it starts. 1 / tau is the temperature.
        learn_precision: learn tau by gradient along with the weights.
        class_axis: the axis of the logits; None for axis 1 of outputs (N, K), (N, K, H, W) and
            (N, K, D, H, W), as in `torch.nn.functional.cross_entropy`. For outputs of three axes it must be
            given: 1 for (N, K, L), -1 for the (N, L, K) of token classifiers and language models.
        ignore_index: the void label, as of unlabelled pixels; it may lie outside the classes. None: there are
            no void labels.

    The log-probability of a void label is 0 whatever the output: it adds nothing to the sum over a row in
    `NegativeELBO`, to its gradient, or to the joint log-probability of a draw. `counts` says which labels are
    not void; metrics average over these alone.

    Shape: output (N, K, ...), or (N, ..., K) with class_axis=-1; y (N, ...) of integers -> (N, ...).
    Reference: Gal & Ghahramani (2015), Eq. 5.

    >>> logits = torch.zeros(2, 5, 3)  # 2 sentences of 5 tokens, 3 tags
    >>> Categorical(class_axis=-1).log_prob(logits, torch.ones(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5])
    >>> void = Categorical(ignore_index=255)
    >>> void.log_prob(torch.zeros(3, 2), torch.tensor([0, 1, 255]))
    tensor([-0.6931, -0.6931,  0.0000])
    >>> Categorical(precision=0.5).log_prob(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([-0.3133])
    """

    #: None where the precision is fixed at 1
    log_precision: Tensor | None

    def __init__(
        self,
        *,
        precision: float = 1.0,
        learn_precision: bool = False,
        class_axis: int | None = None,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(class_axis=class_axis)
        want = "a positive number, from 1e-30 to 1e30"
        precision = real_number("Categorical", "precision", precision, want, at_least=1e-30, at_most=1e30)
        must_be_flag("Categorical", learn_precision=learn_precision)
        self.learn_precision = bool(learn_precision)
        log_precision = torch.tensor(math.log(precision), dtype=torch.get_default_dtype())
        if self.learn_precision:
            self.log_precision = nn.Parameter(log_precision)
        else:
            # A precision of 1 is not stored, so that files without one are read as precision 1.
            self.register_buffer("log_precision", None if abs(precision - 1) < 1e-6 else log_precision)
        if ignore_index is not None:
            ignore_index = whole_number("Categorical", "ignore_index", ignore_index)
        self.ignore_index = ignore_index

    def extra_repr(self) -> str:
        """The precision, the axis and the void label, for `print`."""
        learned = ", learn_precision=True" if self.learn_precision else ""
        scale = "" if self.log_precision is None else f"precision={self.precision.item():.6g}{learned}"
        void = "" if self.ignore_index is None else f"ignore_index={self.ignore_index}"
        return ", ".join(part for part in (scale, super().extra_repr(), void) if part)

    @property
    def precision(self) -> Tensor:
        """tau, the factor of the outputs."""
        return torch.ones(()) if self.log_precision is None else self.log_precision.exp()

    def class_log_probs(self, output: Tensor, *, leading: int = 0) -> Tensor:
        """Log-softmax of tau times the output, classes on the last axis."""
        if self.log_precision is None:
            return super().class_log_probs(output, leading=leading)
        must_be_tensor("Categorical", "output", output, floating=True)
        return super().class_log_probs(output * self.precision.to(output.dtype), leading=leading)

    def output_of(self, class_log_probs: Tensor) -> Tensor:
        """The log-probabilities, divided by tau."""
        if self.log_precision is None:
            return super().output_of(class_log_probs)
        return super().output_of(class_log_probs / self.precision.to(class_log_probs.dtype))

    def counts(self, y: Tensor) -> Tensor:
        """Whether each label counts, that is, is not void. Shape as `y`."""
        if self.ignore_index is None:
            return torch.ones_like(y, dtype=torch.bool)
        return y != self.ignore_index

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """Log-probability of each label, 0 where it is void. Shape (N, ...)."""
        log_probs = self.class_log_probs(output)
        if self.ignore_index is None:
            self._check_labels(log_probs, y, y)
            return log_probs.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)
        must_be_tensor("Categorical", "y", y)
        counts = self.counts(y)
        self._check_labels(log_probs, y, y[counts])
        # A void label is replaced by class 0; its log-probability and gradient are then set to 0.
        labels = torch.where(counts, y, 0).long()
        chosen = log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return torch.where(counts, chosen, 0.0)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One label for every output. Shape (N, ...)."""
        probs = self.class_log_probs(output).exp()
        must_be_finite(type(self).__name__, "output's softmax", probs)
        return _sampled(probs, generator).to(output.device)

    def _check_labels(self, log_probs: Tensor, y: Tensor, counted: Tensor) -> None:
        classes = log_probs.shape[-1]
        must_be_tensor("Categorical", "y", y)
        if y.shape != log_probs.shape[:-1]:
            want = f"labels of shape {tuple(log_probs.shape[:-1])}"
            raise ValueError(must("Categorical", "y", want, tuple(y.shape)))
        if y.is_floating_point():
            raise TypeError(must("Categorical", "y", "integer labels", y.dtype))
        if counted.numel() and (int(counted.min()) < 0 or int(counted.max()) >= classes):
            void = "" if self.ignore_index is None else f", or {self.ignore_index}, which is void"
            seen = f"{int(counted.min())} to {int(counted.max())}"
            hint = "Categorical(ignore_index=...) is for void labels." if self.ignore_index is None else ""
            want = f"in 0 to {classes - 1}, the model's classes{void}"
            sentence = f"Categorical: `y` must be {want}; got {seen}."
            raise ValueError(f"{sentence} {hint}" if hint else sentence)


class Multinomial(SoftmaxLikelihood):
    """Counts y ~ Multinomial(n, softmax(f)) with n = sum of y, as of a user's clicks over items.

    Args:
        coefficient: include the multinomial coefficient log(n! / prod_k y_k!), which depends on y alone.
        class_axis: the axis of the logits, as of `Categorical`.

    Shape: output (N, K), y (N, K) of counts -> (N,).
    Reference: Boluki et al. (2020), section 3.3; Liang et al. (2018), Eq. 2.
    """

    def __init__(self, *, coefficient: bool = True, class_axis: int | None = None) -> None:
        super().__init__(class_axis=class_axis)
        must_be_flag("Multinomial", coefficient=coefficient)
        self.coefficient = coefficient

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """sum_k y_k log p_k, plus the coefficient. Shape (N, ...)."""
        log_probs = self.class_log_probs(output)
        must_be_tensor("Multinomial", "y", y)
        if y.shape != output.shape:
            raise ValueError(
                must("Multinomial", "y", f"counts of shape {tuple(output.shape)}", tuple(y.shape))
            )
        must_be_finite("Multinomial", "y", y)
        if bool((y < 0).any()):
            raise ValueError(must("Multinomial", "y", "counts of at least 0", float(y.min())))
        counts = y.to(log_probs.dtype).movedim(self.axis_in(output.shape), -1)
        value = (counts * log_probs).sum(-1)
        if self.coefficient:
            value = value + torch.lgamma(counts.sum(-1) + 1) - torch.lgamma(counts + 1).sum(-1)
        return value

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The class of one trial for every row. Shape (N, ...)."""
        probs = self.class_log_probs(output).exp()
        must_be_finite(type(self).__name__, "output's softmax", probs)
        return _sampled(probs, generator).to(output.device)


def _sampled(probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """(N, ...) labels from (N, ..., K) probabilities, on the CPU."""
    flat = torch.multinomial(probs.reshape(-1, probs.shape[-1]).cpu(), 1, generator=generator)
    return flat.reshape(probs.shape[:-1])
