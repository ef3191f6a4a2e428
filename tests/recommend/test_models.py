"""Models of choices: what they learn, what they say, files, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import ElasticNet

from bayesdrop.errors import NoRandomness
from bayesdrop.metrics import ndcg_at
from bayesdrop.recommend import (
    CDAE,
    EASE,
    IAFVAE,
    SIVAE,
    SLIM,
    Blend,
    ImplicitALS,
    Interactions,
    MultDAE,
    MultVAE,
    Popularity,
    Recommender,
    UserSplit,
    VampVAE,
    evaluate_lists,
)

SMALL: dict[str, Any] = {
    "hidden": 32,
    "latent": 8,
    "batch_size": 50,
    "epochs": 15,
    "anneal_steps": 50,
    "lr": 1e-2,
}
NETWORKS = [
    MultVAE(**SMALL),
    MultDAE(**SMALL),
    CDAE(**SMALL),
    VampVAE(num_histories=10, **SMALL),
    IAFVAE(flow_hidden=16, **SMALL),
    *[SIVAE(dropout=kind, **SMALL) for kind in ("learnable", "concrete", "gaussian", "fixed", None)],  # type: ignore[arg-type]
]
CLOSED = [Popularity(), EASE(l2=20), SLIM(l1=1, l2=20, steps=20), ImplicitALS(factors=8, iterations=5)]


@pytest.fixture(scope="module")
def split() -> UserSplit:
    """Users of four tastes, 15 items each; a user mostly chooses by one taste."""
    source = np.random.default_rng(0)
    rows = []
    for user in range(400):
        taste = source.integers(4)
        for _ in range(14):
            own = source.random() < 0.85
            group = taste if own else source.integers(4)
            rows.append((f"user {user}", f"item {group * 15 + int(15 * source.random() ** 2):02d}"))
    users, items = zip(*rows, strict=True)
    data = Interactions.from_table({"user": list(users), "item": list(items)})
    return data.split_by_users(validation=80, test=80)


@pytest.mark.parametrize("model", NETWORKS, ids=lambda m: f"{type(m).__name__} {getattr(m, 'dropout', '')}")
def test_networks_find_the_taste_of_new_users(model: Recommender, split: UserSplit) -> None:
    popular = ndcg_at(Popularity().fit(split.train).ranked(split.test, 20), 20)
    found = ndcg_at(model.fit(split.train, split.validation).ranked(split.test, 20), 20)
    gain = found - popular
    assert gain.mean > 5 * gain.standard_error


@pytest.mark.parametrize("model", CLOSED[1:], ids=lambda m: type(m).__name__)
def test_item_weights_find_the_taste_of_new_users(model: Recommender, split: UserSplit) -> None:
    popular = ndcg_at(Popularity().fit(split.train).ranked(split.test, 20), 20)
    gain = ndcg_at(model.fit(split.train).ranked(split.test, 20), 20) - popular
    assert gain.mean > 5 * gain.standard_error


def test_ease_is_ridge_regression_of_every_item_on_the_others(split: UserSplit) -> None:
    x = split.train.matrix.toarray().astype(np.float64)
    model = EASE(l2=30).fit(split.train)
    for item in (0, 17, 41):
        others = np.delete(np.arange(x.shape[1]), item)
        gram = x[:, others].T @ x[:, others] + 30 * np.eye(len(others))
        weights = np.linalg.solve(gram, x[:, others].T @ x[:, item])
        np.testing.assert_allclose(model._weights.numpy()[others, item], weights, rtol=2e-3, atol=2e-5)
        assert model._weights[item, item] == 0


def test_slim_is_the_elastic_net_of_scikit_learn(split: UserSplit) -> None:
    x = split.train.matrix.toarray().astype(np.float64)
    l1, l2 = 2.0, 10.0
    model = SLIM(l1=l1, l2=l2, steps=400).fit(split.train)
    for item in (3, 29):
        others = np.delete(np.arange(x.shape[1]), item)
        net = ElasticNet(
            alpha=(l1 + l2) / len(x),
            l1_ratio=l1 / (l1 + l2),
            positive=True,
            fit_intercept=False,
            tol=1e-8,
            max_iter=10_000,
        )
        net.fit(x[:, others], x[:, item])
        np.testing.assert_allclose(model._weights.numpy()[others, item], net.coef_, atol=2e-3)
    assert float((model._weights == 0).float().mean()) > 0.2


def test_factors_of_new_users_are_those_that_alternating_least_squares_gives(split: UserSplit) -> None:
    model = ImplicitALS(factors=6, alpha=8.0, l2=3.0, iterations=3).fit(split.train)
    items = model._items.double().numpy()
    for place in (0, 11):
        x = split.test.seen.matrix[[place]].toarray()[0].astype(np.float64)
        # Weighted ridge regression of the whole row, zeros too.
        weight = np.where(x > 0, 8.0, 1.0)
        system = items.T @ (weight[:, None] * items) + 3.0 * np.eye(6)
        user = np.linalg.solve(system, items.T @ (weight * x))
        np.testing.assert_allclose(model.scores(split.test.seen)[place], items @ user, rtol=1e-3, atol=1e-4)


def test_a_blend_weighs_its_models_by_validation_users(split: UserSplit, tmp_path: Path) -> None:
    good, other, bad = EASE(l2=20), MultVAE(**SMALL), Popularity()
    model = Blend([bad, good, other]).fit(split.train, split.validation)
    weights = [row["weight"] for row in model.search]
    assert sum(weights) == pytest.approx(1)
    assert weights[0] < 0.2
    assert max(row["ndcg"] for row in model.search) > model.search[0]["ndcg"]
    model.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert isinstance(loaded, Blend)
    assert loaded.search == model.search
    np.testing.assert_array_equal(loaded.scores(split.test.seen), model.scores(split.test.seen))
    assert loaded.recommend(split.test.seen, k=3, explore="ucb").items.shape == (80, 3)
    with pytest.raises(ValueError, match=r"Blend.fit: `validation` must be users to choose weights by"):
        Blend([good]).fit(split.train)


def test_items_beyond_the_most_popular_come_last(split: UserSplit) -> None:
    model = EASE(max_items=30).fit(split.train)
    kept = set(np.argsort(-split.train.counts(), kind="stable")[:30].tolist())
    order = np.argsort(-model.scores(split.test.seen), 1)
    for row in order:
        assert set(row[:30].tolist()) == kept


@pytest.mark.parametrize("model", [*CLOSED, NETWORKS[0], NETWORKS[5]], ids=lambda m: type(m).__name__)
def test_lists_hold_nothing_seen_and_are_ordered(model: Recommender, split: UserSplit) -> None:
    model.fit(split.train)
    lists = model.recommend(split.test.seen, k=10, num_draws=5)
    assert model.recommend(split.test.seen, k=10).spread is None
    assert lists.items.shape == (80, 10)
    assert (np.diff(lists.scores, axis=1) <= 0).all()
    for place in range(80):
        seen = set(split.test.seen.items[split.test.seen.matrix[[place]].indices])
        assert not seen & set(lists.items[place])
    assert (lists.spread is not None) == model.is_random
    table = lists.table()
    assert table["rank"].max() == 10
    assert len(table) == 800
    again = model.recommend([["item 00", "item 01", "no such item"], []], k=3, exclude_seen=False)
    assert again.known.tolist() == [2, 0]
    assert np.isfinite(again.scores).all()


def test_exploration_ranks_by_draws(split: UserSplit) -> None:
    model = MultVAE(**SMALL).fit(split.train)
    plain = model.recommend(split.test.seen, k=5, num_draws=20)
    assert model.draws(split.test.seen, 3).shape == (3, 80, len(model.items))
    thompson = [model.recommend(split.test.seen, k=5, explore="thompson", seed=s) for s in (0, 0, 1)]
    np.testing.assert_array_equal(thompson[0].items, thompson[1].items)
    assert (thompson[0].items != thompson[2].items).any()
    assert (thompson[0].items != plain.items).any()
    ucb = model.recommend(split.test.seen, k=5, explore="ucb", width=3.0)
    assert ucb.spread is not None
    assert plain.spread is not None
    assert ucb.spread.mean() > plain.spread.mean()
    # A longer history leaves less to guess.
    short = model.recommend([["item 00"]] * 3, k=5, num_draws=20)
    assert short.spread is not None
    assert short.spread.mean() > plain.spread.mean()


@pytest.mark.parametrize("model", [*CLOSED, *NETWORKS[:6]], ids=lambda m: type(m).__name__)
def test_a_file_brings_a_model_back(model: Recommender, split: UserSplit, tmp_path: Path) -> None:
    model.fit(split.train)
    model.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert loaded.options() == model.options()
    np.testing.assert_array_equal(loaded.items, model.items)
    np.testing.assert_array_equal(loaded.scores(split.test.seen), model.scores(split.test.seen))


@pytest.mark.parametrize(
    ("model", "option"),
    [
        (MultVAE(**SMALL), "latent"),
        (MultVAE(**SMALL), "hidden"),
        (MultVAE(**SMALL, decoder_hidden=(8,)), "decoder_hidden"),
        (VampVAE(num_histories=10, **SMALL), "num_histories"),
        (IAFVAE(flow_hidden=16, **SMALL), "flow_hidden"),
        (ImplicitALS(factors=8), "factors"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_options_that_a_file_does_not_bear_out_make_nothing(
    model: Recommender, option: str, split: UserSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = model.fit(split.train)._tensors()
    huge = (10**12,) if option == "decoder_hidden" else 10**12
    monkeypatch.setattr(model, option, huge)
    with pytest.raises((ValueError, KeyError)):
        model._restore(tensors, len(split.train.items))


def test_the_same_seed_gives_the_same_model(split: UserSplit) -> None:
    state = torch.random.get_rng_state()
    first, second = (SIVAE(**SMALL).fit(split.train, split.validation) for _ in range(2))
    np.testing.assert_array_equal(first.scores(split.test.seen), second.scores(split.test.seen))
    torch.testing.assert_close(torch.random.get_rng_state(), state)


def test_what_cannot_be_fitted_is_refused(split: UserSplit, tmp_path: Path) -> None:
    empty = Interactions(csr_array((2, 2), dtype=np.float32), np.arange(2), np.arange(2))
    with pytest.raises(ValueError, match=r"EASE.fit: `train` must be at least one pair"):
        EASE().fit(empty)
    with pytest.raises(ValueError, match=r"EASE.recommend: the model has not been fitted"):
        EASE().recommend([[1]])
    fitted = Popularity().fit(split.train)
    with pytest.raises(NoRandomness, match=r"Popularity: nothing in it is random"):
        fitted.draws([["item 00"]])
    with pytest.raises(ValueError, match=r"`explore` must be None: Popularity has no draws"):
        fitted.recommend([["item 00"]], explore="thompson")
    with pytest.raises(TypeError, match=r"`history` must be Interactions, or a list"):
        fitted.recommend("item 00")
    with pytest.raises(ValueError, match=r"SIVAE: `dropout` must be one of"):
        SIVAE(dropout="none")  # type: ignore[arg-type]
    fitted.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"EASE.load: `path` must be a file of a EASE"):
        EASE.load(tmp_path / "model")


def test_users_without_anything_held_out_are_refused_by_every_door(split: UserSplit) -> None:
    data = Interactions(split.train.matrix, split.train.users, split.train.items)
    empty = data.split_by_users(validation=0, test=10)
    for model in (EASE(), MultVAE(**SMALL), Blend()):
        with pytest.raises(ValueError, match=r"fit: `validation` must be users with items that are held out"):
            model.fit(empty.train, empty.validation)
    fitted = EASE().fit(empty.train)
    strangers = Interactions.from_table({"user": [1] * 10, "item": list("abcdefghij")}).hidden()
    for held_out in (empty.validation, strangers):
        with pytest.raises(ValueError, match=r"EASE.ranked: `held_out` must be users with items"):
            evaluate_lists(fitted, held_out)


@pytest.mark.parametrize(
    "model", [CLOSED[1], CLOSED[3], NETWORKS[0], NETWORKS[5]], ids=lambda m: type(m).__name__
)
def test_users_with_one_item_can_be_learned_from(model: Recommender) -> None:
    alone = Interactions.from_table({"user": np.arange(40), "item": np.arange(40) % 5})
    lists = model.fit(alone).recommend([[0], [], [0, 0, "nobody knows"]], k=2)
    assert np.isfinite(lists.scores).all()
    assert lists.known.tolist() == [1, 0, 1]
