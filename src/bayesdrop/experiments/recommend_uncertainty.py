"""Beyond Boluki et al. (2020), 3.3: is the uncertainty of a recommender of use?

A VAE, a SIVAE with learned rates and a VAE without dropout are asked three questions about users that none of
them was trained on. Does the spread of scores over draws tell which users' lists are poor, and more than
the length of their history tells? Does exploring by draws find the taste of somebody of whom nothing is known
in fewer lists than showing the best guess every time? And does a list contain as many of the right items as
the model's probabilities say?

Exploration is replayed: a user with a known set of items is shown ten items a round, takes those that are in
the set, and the next list is made from what was taken so far; nothing is shown twice. What counts is the
number of items taken in all rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.experiments.settings import all_but
from bayesdrop.plots import finish_axes, new_figure

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

MODELS = ("VAE, dropout", "SIVAE, learnable", "VAE")
WAYS = ("greedy", "thompson", "ucb")
#: raised with what a piece does
REVISION = 2


@dataclass(frozen=True)
class Config:
    """MovieLens-1M, three seeds."""

    data: str = "movielens-1m"
    num_seeds: int = 3
    num_draws: int = 20
    rounds: int = 10
    shown: int = 10  #: items a round
    num_users: int = 500  #: of the exploration
    epochs: int | None = None
    hidden: int = 600
    latent: int = 200
    held_users: int = 1000
    seed: int = 0


SMOKE = Config(
    data="movielens-100k", num_seeds=1, num_draws=3, rounds=2, num_users=10, epochs=2, hidden=16, latent=4,
    held_users=40,
)  # fmt: skip
PRESETS = {"quick": Config(data="movielens-100k", num_seeds=1, epochs=40, held_users=90, num_users=90)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Rank correlations, risk and coverage, items found by exploring, and calibration."""
    common = all_but(config, "num_seeds", "seed") | {"split_seed": config.seed, "file": ""}
    seeds = range(config.seed, config.seed + config.num_seeds)
    groups = {model: [{**common, "model": model, "seed": seed} for seed in seeds] for model in MODELS}
    found = run_groups(groups, _asked, cache=cache, progress=progress, label="uncertainty")
    rows = [row for model, trials in found.items() for row in _rows(model, trials)]
    names = ("ndcg", "spread", "length", "expected", "observed", *WAYS)
    arrays = {f"{model}|{name}": trials[0][name] for model, trials in found.items() for name in names}
    return Outcome(rows, _claims(found), arrays)


def _asked(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: a trained model, and what the three questions need.

    Returns: of the U users with a known NDCG, `ndcg`, mean `spread` of the first 20 items, `length` of the
    history, and the two shares of `_shares`, (U,) each; items found (rounds,) by each of `WAYS`.
    """
    from bayesdrop.experiments.boluki2020_recommender.models import MODELS as TABLE
    from bayesdrop.experiments.boluki2020_recommender.trials import split_of
    from bayesdrop.metrics import ndcg_at

    split = split_of(key)
    options = {name: key[name] for name in ("hidden", "latent", "epochs", "seed")}
    model = TABLE[key["model"]].make(options, False).fit(split.train, split.validation)
    ndcg = ndcg_at(model.ranked(split.test), 100).values.numpy()
    lists = model.recommend(split.test.seen, 20, num_draws=key["num_draws"], seed=key["seed"])
    expected, observed = _shares(model, split.test)
    known = ~np.isnan(ndcg)
    return {
        "ndcg": ndcg[known],
        "spread": lists.spread.mean(1)[known],
        "length": lists.known[known],
        "expected": expected[known],
        "observed": observed[known],
        **{way: _explored(model, split.test, key, way) for way in WAYS},
    }


def _shares(model: Any, test: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The share of a user's next choices among the 20 likeliest items: as expected, as it was; (U,) each."""
    scores = model.scores(test.seen).astype(np.float64)
    rows, columns = test.seen.pairs().T
    scores[rows, columns] = -np.inf
    probs = np.exp(scores - scores.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    top = np.argsort(-probs, 1)[:, :20]
    right = test.held.matrix.toarray() > 0
    count = np.maximum(1, right.sum(1))
    return np.take_along_axis(probs, top, 1).sum(1), np.take_along_axis(right, top, 1).sum(1) / count


def _explored(model: Any, test: Any, key: Mapping[str, Any], way: str) -> NDArray[np.float64]:
    """(rounds,) items that a user has taken up to the end of each round, mean over users."""
    from scipy.sparse import csr_array

    from bayesdrop.recommend import Interactions

    whole = (test.seen.matrix + test.held.matrix)[: key["num_users"]].toarray() > 0
    users = len(whole)
    shown = np.zeros_like(whole)
    taken = np.zeros_like(whole)
    totals = []
    for round_ in range(key["rounds"]):
        history = Interactions(csr_array(taken.astype(np.float32)), np.arange(users), test.seen.items)
        scores = _scores(model, history, way, key, round_)
        scores[shown] = -np.inf
        listed = np.argpartition(-scores, key["shown"], 1)[:, : key["shown"]]
        np.put_along_axis(shown, listed, True, 1)
        taken = whole & shown
        totals.append(taken.sum() / users)
    return np.asarray(totals)


def _scores(model: Any, history: Any, way: str, key: Mapping[str, Any], round_: int) -> NDArray[np.float32]:
    """(U, items) by what the next list is made: the best guess, one draw, or mean + std over draws."""
    if way == "greedy":
        found: NDArray[np.float32] = model.scores(history).copy()
        return found
    count = 1 if way == "thompson" else key["num_draws"]
    seed = 1000 * key["seed"] + round_
    parts = []
    # Some users at a time: draws of all items are large.
    for start in range(0, len(history.users), 50):
        some = history.of_users(np.arange(start, min(start + 50, len(history.users))))
        draws = model.draws(some, count, seed=seed * 100 + start)
        parts.append(draws[0] if count == 1 else draws.mean(0) + draws.std(0, ddof=1))
    return np.concatenate(parts)


def _rank_correlation(a: NDArray[Any], b: NDArray[Any]) -> float:
    first, second = (np.argsort(np.argsort(values)).astype(np.float64) for values in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def _partial(a: NDArray[Any], b: NDArray[Any], given: NDArray[Any]) -> float:
    """Partial rank correlation of a and b: that which is left where `given` is held fixed."""
    ab, ac, bc = _rank_correlation(a, b), _rank_correlation(a, given), _rank_correlation(b, given)
    return float((ab - ac * bc) / np.sqrt((1 - ac**2) * (1 - bc**2)))


def _kept(trial: Mapping[str, Any], score: str) -> float:
    """Mean NDCG of the surer half of the users, over that of all."""
    order = np.argsort(trial[score])[: len(trial["ndcg"]) // 2]
    return float(np.mean(trial["ndcg"][order]) / np.mean(trial["ndcg"]))


def _rows(model: str, trials: list[dict[str, Any]]) -> list[Row]:
    numbers = {
        "NDCG@100 (%)": [100 * float(t["ndcg"].mean()) for t in trials],
        "rank correlation of spread and NDCG": [_rank_correlation(t["spread"], t["ndcg"]) for t in trials],
        "the same, length of history held fixed": [
            _partial(t["spread"], t["ndcg"], t["length"]) for t in trials
        ],
        "NDCG of the surer half, over all": [_kept(t, "spread") for t in trials],
        "share of choices in the first 20, as expected (%)": [
            100 * float(t["expected"].mean()) for t in trials
        ],
        "share of choices in the first 20, as it was (%)": [
            100 * float(t["observed"].mean()) for t in trials
        ],
        **{f"items found in all rounds, {way}": [float(t[way][-1]) for t in trials] for way in WAYS},
    }
    return [Row.of_runs(model, name, values) for name, values in numbers.items()]


def _claims(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[Claim]:
    """Thresholds were fixed before any run."""
    trials = found["VAE, dropout"]
    plain = float(np.mean([_rank_correlation(t["spread"], t["ndcg"]) for t in trials]))
    given = float(np.mean([_partial(t["spread"], t["ndcg"], t["length"]) for t in trials]))
    yield Claim(
        "The spread tells which lists are poor: its rank correlation with NDCG is below -0.2.",
        f"{plain:+.2f} (VAE with dropout, mean of seeds).",
        plain < -0.2,
    )
    yield Claim(
        "It tells more than the history's length: with that held fixed the correlation is below -0.1.",
        f"{given:+.2f}.",
        given < -0.1,
    )
    best = [[float(t[way][-1]) for t in trials] for way in WAYS]
    yield Claim(
        "Exploring by draws finds more of a new user's items than the best guess, in every seed.",
        "; ".join(
            f"{way} {' '.join(f'{v:.2f}' for v in values)}" for way, values in zip(WAYS, best, strict=True)
        ),
        all(max(b, c) > a for a, b, c in zip(*best, strict=True)),
    )
    gaps = [float(t["expected"].mean() - t["observed"].mean()) / float(t["observed"].mean()) for t in trials]
    gap = float(np.mean(gaps))
    yield Claim(
        "Lists are calibrated: the first 20 get what the probabilities say, within a tenth.",
        f"expected over observed, minus one: {100 * gap:+.0f} %.",
        abs(gap) < 0.1,
    )


def draw(outcome: Outcome) -> Any:
    """NDCG against spread, items found by round, and expected against observed shares."""
    arrays = outcome.arrays
    figure = new_figure(14, 4.2)
    left, middle, right = figure.subplots(1, 3)
    model = MODELS[0]
    left.plot(arrays[f"{model}|spread"], arrays[f"{model}|ndcg"], ".", markersize=3, alpha=0.5)
    finish_axes(left, model, xlabel="mean spread of the first 20 items", ylabel="NDCG@100")
    for place, name in enumerate(MODELS[:2]):
        for way, style in zip(WAYS, ("-", "--", ":"), strict=True):
            found = np.asarray(arrays[f"{name}|{way}"], dtype=float)
            rounds = np.arange(1, len(found) + 1)
            middle.plot(rounds, found, style, color=f"C{place}", label=f"{name}: {way}")
    finish_axes(middle, "nothing known at first", legend=True, xlabel="round", ylabel="items found, a user")
    for place, name in enumerate(MODELS):
        expected = np.asarray(arrays[f"{name}|expected"], dtype=float)
        observed = np.asarray(arrays[f"{name}|observed"], dtype=float)
        groups = np.array_split(np.argsort(expected), 10)
        points = [(expected[g].mean(), observed[g].mean()) for g in groups if len(g)]
        right.plot(*np.transpose(points), "o-", color=f"C{place}", label=name, markersize=3)
    limit = max(right.get_xlim()[1], right.get_ylim()[1])
    right.plot([0, limit], [0, limit], ":", color="0.5")
    names = {"xlabel": "share in the first 20, as expected", "ylabel": "as it was"}
    finish_axes(right, "tenths of the users", legend=True, **names)
    return figure
