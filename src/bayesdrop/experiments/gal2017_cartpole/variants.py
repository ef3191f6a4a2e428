"""The agents that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["VARIANTS", "Variant"]


@dataclass(frozen=True)
class Variant:
    """How an agent models the world, and how it acts."""

    title: str
    dropout: Literal["concrete", "fixed", "scheduled"]
    control: Literal["policy", "mpc", "plain"]
    mirrored: bool
    length: Literal["long", "short", "other"]


VARIANTS = {
    "concrete, mirrored": Variant("Concrete, mirrored data", "concrete", "policy", True, "long"),
    "concrete": Variant("Concrete", "concrete", "policy", False, "long"),
    "fixed": Variant("fixed at 0.1, mirrored data", "fixed", "policy", True, "short"),
    "scheduled": Variant("0.1 / trial, mirrored data", "scheduled", "policy", True, "short"),
    "mpc": Variant("MPC, Concrete, mirrored data", "concrete", "mpc", True, "other"),
    "plain": Variant("published search, Concrete", "concrete", "plain", False, "other"),
}
