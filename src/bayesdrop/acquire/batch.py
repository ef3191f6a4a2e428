"""BatchBALD: batches of rows whose labels are together most informative."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.acquire.probabilities import draw_probabilities
from bayesdrop.acquire.select import allowed_rows
from bayesdrop.errors import whole_number, whole_seed
from bayesdrop.predict import Prediction

__all__ = ["Batch", "batch_bald"]

#: numbers that are held at a time for the candidates of one chunk
_CHUNK = 4_000_000


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows chosen one after another, and the information that each adds."""

    rows: Tensor  #: (k,) in the order they were chosen
    gains: Tensor  #: (k,) I(y_j; w | y_1 ... y_j-1), in nats
    exact: Tensor  #: (k,) whether a gain is a sum over all labels of the rows before, or a Monte Carlo mean

    @property
    def information(self) -> Tensor:
        """I(y_1 ... y_k; w): information of all labels together about the function, in nats. Shape ()."""
        return self.gains.sum()


def batch_bald(
    prediction: Prediction,
    k: int,
    *,
    among: Tensor | None = None,
    max_configurations: int = 2000,
    seed: int = 0,
) -> Batch:
    """k rows chosen greedily by the joint information of their labels, so that they do not repeat each other.

        gain of c = I(y_c; w | chosen) = sum_m P(m) [ H(y_c | m) - sum_t P(w_t | m) H(y_c | w_t) ]

    m runs over all joint labels of the chosen rows. From the first row for which there are more than
    `max_configurations` of them, m is that many samples instead; the bracket stays exact, and at least 0. The
    first gain is `bald`. The greedy batch has at least 1 - 1/e of the information of the best batch.

    Args:
        prediction: of classes, (N, K), with draws that were kept and are functions.
        k: rows of the batch.
        among: (N,) of booleans, or indices: the rows that may be chosen; all if None.
        max_configurations: the most joint labels of chosen rows that are used.
        seed: of the samples.

    Reference: Kirsch, van Amersfoort & Gal (2019). Their joint entropy is our sum of conditional ones.
    """
    owner = "acquire.batch_bald"
    probs = draw_probabilities(owner, prediction)
    rows = allowed_rows(owner, probs.shape[1], k, among)
    max_configurations = whole_number(owner, "max_configurations", max_configurations, at_least=1)
    probs = probs[:, rows]
    draws, size, classes = probs.shape
    generator = torch.Generator().manual_seed(whole_seed(owner, seed))
    # weight[m, t] = P(labels m of the chosen rows | w_t) / T: one configuration, that of no label, at first
    weight = torch.full((1, draws), 1 / draws, dtype=torch.float64)
    share = torch.ones(1, dtype=torch.float64)
    chosen: list[int] = []
    gains: list[Tensor] = []
    exact: list[bool] = []
    free = torch.ones(size, dtype=torch.bool)
    for _ in range(k):
        gain = _conditional_information(weight, share, probs)
        best = int(torch.where(free, gain, -torch.inf).argmax())
        exact.append(classes ** len(chosen) <= max_configurations)
        chosen.append(best)
        gains.append(gain[best].clamp_min(0))
        free[best] = False
        if classes ** len(chosen) <= max_configurations:
            weight = (weight.unsqueeze(1) * probs[:, best].T).flatten(0, 1)
            share = weight.sum(1)
        else:
            weight = _sampled(probs[:, chosen], max_configurations, generator)
            share = torch.full((max_configurations,), 1 / max_configurations, dtype=torch.float64)
    return Batch(rows[torch.tensor(chosen)], torch.stack(gains), torch.tensor(exact))


def _conditional_information(weight: Tensor, share: Tensor, probs: Tensor) -> Tensor:
    """(N,) sum_m share_m I(y; w | m), with P(w_t | m) = weight_mt / sum_t weight_mt."""
    possible = weight.sum(1) > 0
    given, share = weight[possible] / weight[possible].sum(1, keepdim=True), share[possible]
    # The mean over the same samples of m in both terms: the errors of sampling nearly cancel.
    known = (share @ given) @ -torch.xlogy(probs, probs).sum(-1)
    draws, size, classes = probs.shape
    step = max(1, _CHUNK // (classes * len(given)))
    parts = []
    for start in range(0, size, step):
        some = probs[:, start : start + step]
        mixed = (given @ some.reshape(draws, -1)).reshape(len(given), -1, classes)
        parts.append(share @ -torch.xlogy(mixed, mixed).sum(-1))
    return torch.cat(parts) - known


def _sampled(probs: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """(S, T) chances, under every draw, of S joint labels of the chosen rows sampled from their mixture.

    Args:
        probs: (T, b, K) of the chosen rows.
        number: S.
        generator: of the labels.
    """
    draws, chosen, classes = probs.shape
    # The same number of samples from each draw, up to one: less noise than with draws at random.
    source = (torch.arange(number) + int(torch.randint(draws, (), generator=generator))) % draws
    flat = probs[source].reshape(-1, classes)
    labels = torch.multinomial(flat, 1, generator=generator).reshape(number, chosen)
    log_weight = torch.zeros(number, draws, dtype=torch.float64)
    for place in range(chosen):
        log_weight += probs[:, place].log().T[labels[:, place]]
    # The probability of many labels together is tiny under every draw: only ratios matter.
    return (log_weight - log_weight.amax(1, keepdim=True)).exp()
