"""What validation users choose for a network: the weight of the divergence, and what its scores are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from bayesdrop.recommend import (
    SIVAE,
    Blend,
    Interactions,
    MultDAE,
    MultVAE,
    Recommender,
    UserSplit,
    blend,
)
from bayesdrop.recommend.autoencoder import Autoencoder

SMALL: dict[str, Any] = {
    "hidden": 16, "latent": 4, "batch_size": 40, "epochs": 4, "anneal_steps": 20, "lr": 1e-2,
}  # fmt: skip


@pytest.fixture(scope="module")
def split() -> UserSplit:
    """Users of three tastes, 12 items each."""
    source = np.random.default_rng(0)
    taste = np.repeat(source.integers(3, size=240), 10)
    item = 12 * taste + (12 * source.random(2400) ** 2).astype(int)
    data = Interactions.from_pairs(np.stack([np.repeat(np.arange(240), 10), item], 1))
    return data.split_by_users(validation=60, test=60)


def test_the_weight_of_the_divergence_is_the_one_validation_users_like_best(split: UserSplit) -> None:
    betas = (0.01, 1.0, 30.0, 100.0)
    model = MultVAE(beta=betas, **SMALL).fit(split.train, split.validation)
    alone = {
        beta: max(MultVAE(beta=beta, **SMALL).fit(split.train, split.validation).history) for beta in betas
    }
    tried = [row["beta"] for row in model.search]
    # In order, up to the first that is no better than the one before.
    assert tried == list(betas[: len(tried)])
    assert [row["ndcg"] for row in model.search] == [alone[beta] for beta in tried]
    assert all(alone[b] > alone[a] for a, b in pairwise(tried[:-1]))
    assert model.chosen["beta"] == max(tried, key=alone.__getitem__)
    assert max(model.history) == alone[model.chosen["beta"]]
    same = MultVAE(beta=model.chosen["beta"], **SMALL).fit(split.train, split.validation)
    np.testing.assert_array_equal(model.scores(split.test.seen), same.scores(split.test.seen))


def test_without_validation_users_or_a_divergence_nothing_is_searched(split: UserSplit) -> None:
    assert [row["beta"] for row in MultVAE(beta=(0.5, 1.0), **SMALL).fit(split.train).search] == [0.5]
    model = MultDAE(**{**SMALL, "beta": (0.5, 1.0)}).fit(split.train, split.validation)
    assert len(model.search) == 1
    assert "beta" not in model.chosen


@pytest.mark.parametrize("beta", [(), (-1.0,), (0.1, float("nan")), "0.1", None])
def test_weights_that_make_no_sense_are_refused(beta: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"MultVAE: `beta` must be"):
        MultVAE(beta=beta)


def _with_scores(model: Autoencoder, mean: Any, draws: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Scores that are known, whatever was learned; and which of them were asked for."""
    asked: list[str] = []

    def scores(histories: csr_array) -> torch.Tensor:
        kind = model.chosen.get("score", "mean")
        asked.append(kind)
        return torch.as_tensor(mean if kind == "mean" else draws).expand(histories.shape[0], -1).clone()

    monkeypatch.setattr(model, "_scores", scores)
    return asked


def test_scores_are_averaged_over_draws_where_validation_users_prefer_it(
    split: UserSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = torch.from_numpy(split.validation.held.counts()).float()
    model = MultVAE(**SMALL)
    _with_scores(model, -right, right, monkeypatch)
    assert model.fit(split.train, split.validation).chosen["score"] == "draws"
    _with_scores(model, right, -right, monkeypatch)
    assert model.fit(split.train, split.validation).chosen["score"] == "mean"


def test_a_tie_goes_to_the_mean_network(split: UserSplit, monkeypatch: pytest.MonkeyPatch) -> None:
    popular = torch.from_numpy(split.train.counts()).float()
    model = SIVAE(**SMALL)
    _with_scores(model, popular, popular, monkeypatch)
    assert model.fit(split.train, split.validation).chosen["score"] == "mean"


def test_where_nothing_is_dropped_no_draw_is_made(split: UserSplit, monkeypatch: pytest.MonkeyPatch) -> None:
    popular = torch.from_numpy(split.train.counts()).float()
    for model in (MultVAE(p=0.0, **SMALL), SIVAE(dropout=None, **SMALL), MultVAE(score="mean", **SMALL)):
        asked = _with_scores(model, popular, popular, monkeypatch)
        model.fit(split.train, split.validation)
        assert set(asked) == {"mean"}


def test_an_averaged_score_is_the_log_of_the_mean_probability(split: UserSplit, tmp_path: Path) -> None:
    model = MultVAE(score="draws", score_draws=4000, **SMALL).fit(split.train)
    some = split.test.seen.of_users(np.arange(3))
    found = np.exp(model.scores(some))
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-4)
    draws = np.exp(model.draws(some, 4000, seed=3))
    error = np.sqrt(2 / 4000) * draws.std(0)
    assert (np.abs(found - draws.mean(0)) < 5 * error + 1e-7).all()
    # Whoever else is asked about, the score of a user is the same.
    np.testing.assert_allclose(np.exp(model.scores(some.of_users(np.array([1])))), found[1:2], rtol=1e-5)
    model.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert isinstance(loaded, Autoencoder)
    assert (loaded.chosen, loaded.search) == (model.chosen, model.search)
    np.testing.assert_array_equal(loaded.scores(some), model.scores(some))


def test_small_data_get_small_batches(split: UserSplit, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps an epoch as there are with many users, so that stopping by epochs means the same."""
    sizes: list[int] = []
    whole = MultVAE._losses

    def counted(self: MultVAE, bag: Any, *rest: Any) -> torch.Tensor:
        sizes.append(len(bag))
        return whole(self, bag, *rest)

    monkeypatch.setattr(MultVAE, "_losses", counted)
    options = {**SMALL, "batch_size": None, "epochs": 1}
    many = Interactions(
        csr_array(np.tile(split.train.matrix.toarray(), (8, 1))), np.arange(864), split.train.items
    )
    MultVAE(**options).fit(many)
    assert len(sizes) == 16
    assert set(sizes) == {54}
    sizes.clear()
    MultVAE(**options).fit(split.train)
    assert set(sizes) == {27}  # never more than 32


def test_a_blend_searches_once_for_networks_that_differ_by_seed_only(
    split: UserSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [MultVAE(beta=(0.1, 1.0), **SMALL), MultVAE(beta=(0.1, 1.0), seed=1, **SMALL), SIVAE(**SMALL)]
    monkeypatch.setattr(blend, "default_models", lambda num_items, seed: models)
    model = Blend().fit(split.train, split.validation)
    chosen = [row["chosen"]["beta"] for row in model.search]
    assert chosen[1] == chosen[0]
    assert f"beta={chosen[0]}," in model.search[1]["model"]
    assert "beta=(" in model.search[2]["model"]
