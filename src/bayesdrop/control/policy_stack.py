"""Several policies of one kind that act, and learn, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from bayesdrop.control.policies import MLPPolicy
from bayesdrop.errors import must, must_be_module

__all__ = ["PolicyStack"]


class PolicyStack:
    """B policies that run as one: a step of many small networks costs little more than a step of one.

    In every block of B n rows, the first n rows belong to the first policy, the next n to the second.

    Args:
        owner: the caller, for errors.
        policies: modules of one kind with parameters, from states (N, S) to actions (N, A).

    Attributes:
        parameters: copies of the policies' parameters, (B, ...), which have gradients.
    """

    def __init__(self, owner: str, policies: Sequence[nn.Module]) -> None:
        if not policies:
            raise ValueError(must(owner, "policy", "at least one policy", policies))
        for policy in policies:
            must_be_module(owner, "policy", policy)
            if not any(each.requires_grad for each in policy.parameters()):
                raise ValueError(must(owner, "policy", "a policy with parameters to learn", policy))
        shapes = [{name: each.shape for name, each in policy.named_parameters()} for policy in policies]
        if any(type(policy) is not type(policies[0]) for policy in policies) or any(
            shape != shapes[0] for shape in shapes
        ):
            names = [type(policy).__name__ for policy in policies]
            raise ValueError(must(owner, "policy", "policies of one kind and size", names))
        # The code of the first policy runs for all: whatever is not a tensor must be the same.
        settings = [_settings(policy) for policy in policies]
        for other in settings[1:]:
            if other != settings[0]:
                differ = sorted({*settings[0].items()} ^ {*other.items()})
                raise ValueError(must(owner, "policy", "policies with the same settings", differ))
        self.policies = list(policies)
        found, buffers = stack_module_state(self.policies)
        self._stacked = {name: value.detach().clone() for name, value in found.items()}
        for name, value in self._stacked.items():
            value.requires_grad_(policies[0].get_parameter(name).requires_grad)
        self._buffers = buffers
        self.parameters = [value for value in self._stacked.values() if value.requires_grad]
        self.number = len(self.policies)
        # The `stacked` method of a policy, if it has one, is faster than vmap.
        self._own: Callable[[Mapping[str, Tensor], Tensor], Tensor] | None = None
        same = all((value == value[0]).all() for value in buffers.values())
        if type(policies[0]) is MLPPolicy and same:
            self._own = policies[0].stacked

    def __call__(self, state: Tensor) -> Tensor:
        """Actions (K B n, A) for states (K B n, S), in K blocks."""
        if self.number == 1:
            alone = ({name: value[0] for name, value in part.items()} for part in self._state())
            single: Tensor = functional_call(self.policies[0], tuple(alone), (state,))
            return single
        rows = state.reshape(-1, self.number, self._each, state.shape[-1])
        blocks = rows.shape[0]
        by_policy = rows.transpose(0, 1).flatten(1, 2)
        if self._own is not None:
            actions = self._own(self._stacked, by_policy)
        else:
            actions = vmap(self._called)(*self._state(), by_policy)
        shape = (self.number, blocks, self._each, actions.shape[-1])
        return actions.reshape(shape).transpose(0, 1).flatten(0, 2)

    #: n, rows of a policy in a block
    _each = 1

    def rows_each(self, number: int) -> PolicyStack:
        """Set n, the rows of a policy in a block; returns the stack."""
        self._each = number
        return self

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return self._stacked, self._buffers

    def _called(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], state: Tensor) -> Tensor:
        actions: Tensor = functional_call(self.policies[0], (parameters, buffers), (state,))
        return actions

    def clip_gradients(self, largest: float) -> None:
        """Scale the gradient of every policy to a norm of at most `largest`; set it to 0 if not finite."""
        gradients = [each.grad for each in self.parameters if each.grad is not None]
        squares = [gradient.flatten(1).square().sum(1) for gradient in gradients]
        norm = torch.stack(squares).sum(0).sqrt()
        factor = torch.where(torch.isfinite(norm), (largest / (norm + 1e-6)).clamp_max(1.0), 0.0)
        for gradient in gradients:
            scaled = gradient * factor.reshape(-1, *(1,) * (gradient.dim() - 1))
            gradient.copy_(torch.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0))

    @torch.no_grad()
    def copied(self) -> list[Tensor]:
        """Copies of the present parameters."""
        return [each.clone() for each in self._stacked.values()]

    @torch.no_grad()
    def put_back(self, values: Sequence[Tensor]) -> None:
        """Write these parameters, (B, ...), into the policies."""
        for name, value in zip(self._stacked, values, strict=True):
            for place, policy in enumerate(self.policies):
                policy.get_parameter(name).copy_(value[place])


def _settings(policy: nn.Module) -> dict[str, str]:
    """The attributes of a policy and its parts that are numbers, strings, or lists of them."""
    plain = (bool, int, float, str, list, tuple, type(None))
    return {
        f"{path}.{name}": repr(value)
        for path, part in policy.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, plain) and name != "training"
    }
