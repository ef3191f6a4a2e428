"""Evidence and leave-one-out error: how well a pair (f, lambda0) explains the data."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from bayesdrop.linear.rows import Array

__all__ = ["leave_one_out_errors", "log_evidence"]


def log_evidence(
    residual: Array,
    log_det: float,
    prior_log_det: float,
    *,
    count: float,
    intercept: bool,
    a0: float = 0.0,
    b0: float = 0.0,
) -> float:
    """log Z of the conjugate posterior, summed over targets.

        log Z = 1/2 log |P| - 1/2 log |Lambda| - (n/2) log 2 pi + log Gamma(n/2) - (n/2) log (R/2)

    With log |P| = p log lambda0 this is the generalised evidence of Bayesian dropout: the prior times the
    exponential of the *expected log*-likelihood, integrated. It is not a density over y, and the Jeffreys
    prior is improper: only differences between f, lambda0 on the same y are meaningful.
    With log |P| = log |D| it is the marginal likelihood of the model whose prior includes the dropout
    penalty: an ordinary density over y.

    Args:
        residual: R, one for each target.
        log_det: log |Lambda|.
        prior_log_det: log |P|.
        count: n, the sum of the weights of the rows.
        intercept: whether an intercept with a flat prior is integrated out too, which takes one degree
            of freedom.
        a0: shape of the inverse gamma prior of sigma^2; 0 with b0 = 0 is Jeffreys' 1 / sigma^2.
        b0: its scale.
    """
    freedom = count - intercept
    shape = a0 + 0.5 * freedom
    with np.errstate(divide="ignore"):
        each = gammaln(shape) - shape * np.log(b0 + 0.5 * residual) - 0.5 * freedom * np.log(2 * np.pi)
    constant = 0.5 * (prior_log_det - log_det)
    if intercept:
        constant -= 0.5 * np.log(count)
    if a0 > 0 and b0 > 0:
        constant += a0 * np.log(b0) - gammaln(a0)
    return float(np.sum(each + constant))


def leave_one_out_errors(error: Array, leverage: Array, weights: Array, *, intercept: bool) -> Array:
    """y_i minus its prediction from the other rows, without fitting again: e_i / (1 - h_i).

    The penalty f (1 - f) diag(X'X) and the means of the columns keep their values with all rows. For f = 0
    this is exact.

    Args:
        error: y - prediction with all rows, (N, M), not weighted.
        leverage: a_i' Lambda^-1 a_i of the weighted rows, (N,).
        weights: of the rows, (N,).
        intercept: whether the mean of y is fitted too.
    """
    hat = leverage + (weights / weights.sum() if intercept else 0.0)
    # A row that alone determines a weight has no prediction from the others: an infinite error.
    rest = np.maximum(1 - hat, 0.0)[:, None]
    out = np.full_like(error, np.inf)
    np.divide(error, rest, out=out, where=rest > 1e-12)
    return out
