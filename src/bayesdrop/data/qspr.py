"""Nineteen amino acids: seven properties of the side chain and a free energy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["QSPR", "load_qspr"]

_COLUMNS = ("PIE", "PIF", "DGR", "SAC", "MR", "Lam", "Vol")
# The printed table: the seven columns, then the response DDGTS.
_ROWS = {
    "Ala": (0.23, 0.31, -0.55, 254.2, 2.126, -0.02, 82.2, 8.5),
    "Asn": (-0.48, -0.60, 0.51, 303.6, 2.994, -1.24, 112.3, 8.2),
    "Asp": (-0.61, -0.77, 1.20, 287.9, 2.994, -1.08, 103.7, 8.5),
    "Cys": (0.45, 1.54, -1.40, 282.9, 2.933, -0.11, 99.1, 11.0),
    "Gln": (-0.11, -0.22, 0.29, 335.0, 3.458, -1.19, 127.5, 6.3),
    "Glu": (-0.51, -0.64, 0.76, 311.6, 3.243, -1.43, 120.5, 8.8),
    "Gly": (0.00, 0.00, 0.00, 224.9, 1.662, 0.03, 65.0, 7.1),
    "His": (0.15, 0.13, -0.25, 337.2, 3.856, -1.06, 140.6, 10.1),
    "Ile": (1.20, 1.80, -2.10, 322.6, 3.350, 0.04, 131.7, 16.8),
    "Leu": (1.28, 1.70, -2.00, 324.0, 3.518, 0.12, 131.5, 15.0),
    "Lys": (-0.77, -0.99, 0.78, 336.6, 2.933, -2.26, 144.3, 7.9),
    "Met": (0.90, 1.23, -1.60, 336.3, 3.860, -0.33, 132.3, 13.3),
    "Phe": (1.56, 1.79, -2.60, 366.1, 4.638, -0.05, 155.8, 11.2),
    "Pro": (0.38, 0.49, -1.50, 288.5, 2.876, -0.31, 106.7, 8.2),
    "Ser": (0.00, -0.04, 0.09, 266.7, 2.279, -0.40, 88.5, 7.4),
    "Thr": (0.17, 0.26, -0.58, 283.9, 2.743, -0.53, 105.3, 8.8),
    "Trp": (1.85, 2.25, -2.70, 401.8, 5.755, -0.31, 185.9, 9.9),
    "Tyr": (0.89, 0.96, -1.70, 377.8, 4.791, -0.84, 162.7, 8.8),
    "Val": (0.71, 1.22, -1.60, 295.1, 3.054, -0.13, 115.6, 12.0),
}


@dataclass(frozen=True, eq=False)
class QSPR:
    """The table. Values are float64."""

    x: Tensor  #: (19, 7)
    y: Tensor  #: (19, 1) free energy of unfolding, DDGTS
    columns: tuple[str, ...]  #: of x; correlated with y positively, all but DGR
    rows: tuple[str, ...]  #: amino acids


def load_qspr() -> QSPR:
    """The table of amino acids, which is part of this package.

    Reference: Wold, Sjostrom & Eriksson (2001), PLS-regression: a basic tool of chemometrics.
    """
    table = torch.tensor(list(_ROWS.values()), dtype=torch.float64)
    return QSPR(x=table[:, :7], y=table[:, 7:], columns=_COLUMNS, rows=tuple(_ROWS))
