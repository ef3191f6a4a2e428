"""boluki2020-recommender: claims follow paired differences of users."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesdrop.data import DataNotFound
from bayesdrop.experiments import PieceCache, boluki2020_recommender
from bayesdrop.experiments.boluki2020_recommender import MODELS, PRESETS, Config, _tables, draw, run
from bayesdrop.experiments.boluki2020_recommender.report import make_claims, make_rows
from bayesdrop.experiments.boluki2020_recommender.trials import split_of
from bayesdrop.recommend.autoencoder import Autoencoder


def trials(**means: float) -> dict[tuple[str, str], list[dict[str, object]]]:
    """Two seeds of each model; users differ much, models little: only pairing tells them apart."""
    source = np.random.default_rng(0)
    users = source.normal(size=400)
    found = {}
    for name, mean in means.items():
        model = name.replace("__", ", ")
        values = [mean + 0.1 * users + 0.001 * source.normal(size=400) for _ in range(2)]
        found[model, "our"] = [
            {"ndcg": value, "recall20": value, "recall50": value, "cpu_seconds": 3.0} for value in values
        ]
    return found


def test_paired_differences_decide() -> None:
    found = trials(
        SIVAE__learnable=0.43, SIVAE__concrete=0.41, SIVAE__gaussian=0.42, VAE__dropout=0.42, VAE=0.40
    )
    claims = {claim.text.split(" (")[0]: claim for claim in make_claims("movielens-1m", found)}
    assert claims["Dropout of choices is crucial to the VAE"].holds
    assert claims["SIVAE with concrete dropout is worse than the VAE with dropout"].holds
    assert not claims["SIVAE with gaussian dropout is worse than the VAE with dropout"].holds
    assert claims["SIVAE with learnable dropout is best of all VAEs"].holds
    assert "+1.0" in claims["SIVAE with learnable dropout is best of all VAEs"].measured


def test_rows_are_in_per_cent_beside_what_is_printed() -> None:
    rows = list(make_rows("movielens-1m", trials(VAE__dropout=0.42)))
    row = next(row for row in rows if row.metric == "NDCG@100 (%)")
    assert row.paper == "42.63"
    assert row.ours is not None
    assert abs(row.ours - 42) < 1.5
    assert "MovieLens-20M" in row.note


def test_other_seeds_take_the_weight_that_the_first_chose(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def fake(key: Mapping[str, Any]) -> dict[str, Any]:
        asked.append((key["data"], key["model"], key["seed"], key["beta"], key["sampled_items"]))
        users = np.full(5, 0.4)
        piece = {"ndcg": users, "recall20": users, "recall50": users, "cpu_seconds": 1.0}
        chosen = {"beta": 0.25 if key["beta"] is None else key["beta"], "score": "mean"}
        return piece if key["model"] == "EASE" else {**piece, "chosen": chosen, "search": [chosen]}

    monkeypatch.setattr(boluki2020_recommender, "trial", fake)
    monkeypatch.setattr(boluki2020_recommender, "split_of", lambda common: None)
    config = Config(
        models=("VAE, dropout", "EASE"), recipes=("our",), num_seeds=3, also_models=("VAE, dropout",)
    )
    outcome = run(config, cache=PieceCache("recommender", folder=tmp_path), progress=False)
    assert asked == [
        ("gowalla", "VAE, dropout", 0, 0.0035, 4000),
        ("movielens-1m", "VAE, dropout", 0, None, None),
        ("movielens-1m", "EASE", 0, None, None),
        ("movielens-1m", "VAE, dropout", 1, 0.25, None),
        ("movielens-1m", "VAE, dropout", 2, 0.25, None),
    ]
    row = outcome.row("movielens-1m: VAE, dropout, our settings", "training (CPU s)")
    assert row.note == "beta 0.25 of 1 tried by the first seed, score by the mean network"


def test_a_data_set_that_is_not_at_hand_is_rows_that_were_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(common: Mapping[str, Any]) -> None:
        raise DataNotFound("it is not here")

    monkeypatch.setattr(boluki2020_recommender, "split_of", missing)
    outcome = run(Config(), cache=PieceCache("recommender", folder=tmp_path), progress=False)
    assert len(outcome.rows) == 2 * 9 + 7 + 5
    assert {(row.ours, row.note) for row in outcome.rows} == {(None, "it is not here")}
    draw(outcome)


def test_the_papers_annealing_is_shortened_on_smaller_data_only() -> None:
    for data, steps in (("movielens-1m", 200), ("movielens-20m", 40_000)):
        table = _tables(Config(data=data))[0]
        key = table.key("SIVAE, learnable", "the paper's", seed=0, beta=None)
        assert key["scaled"] == {"anneal_steps": steps}
        assert "scaled" not in table.key("SIVAE, learnable", "our", seed=0, beta=None)
        assert "scaled" not in table.key("EASE", "the paper's", seed=0, beta=None)


def test_every_row_of_the_table_can_be_made() -> None:
    options = {"hidden": 8, "latent": 4, "epochs": 1, "sampled_items": None, "seed": 0}
    for name, model in MODELS.items():
        for paper in (False, True):
            made = model.make(options, paper)
            if isinstance(made, Autoencoder) and made._has_divergence:
                assert len(made._betas()) > 1, f"{name}: validation users have nothing to choose from"


def test_the_papers_data_sets_stand_beside_their_own_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up MovieLens-20M: liked films only, users of five, and the number that is printed for it."""
    source = np.random.default_rng(0)
    lines = ["userId,movieId,rating,timestamp"]
    lines += [
        f"{user},{item},{source.integers(1, 11) / 2},0" for user in range(1, 60) for item in range(1, 130)
    ]
    (tmp_path / "movielens-20m").mkdir()
    with zipfile.ZipFile(tmp_path / "movielens-20m" / "ml-20m.zip", "w") as archive:
        archive.writestr("ml-20m/ratings.csv", "\n".join(lines))
    monkeypatch.setenv("BAYESDROP_DATA", str(tmp_path))
    assert PRESETS["paper"].data == "movielens-20m"
    config = replace(
        PRESETS["paper"], models=("popularity", "VAE, dropout"), held_users=8, epochs=1, hidden=8, latent=4
    )
    outcome = run(config, cache=PieceCache("recommender", folder=tmp_path / "pieces"), progress=False)
    row = outcome.row("movielens-20m: VAE, dropout, the paper's settings", "NDCG@100 (%)")
    assert (row.paper, row.note) == ("42.63", "")


def test_songs_of_few_users_and_users_of_few_songs_are_left_out_of_msd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"u{user}\ts{song}\t2" for user in range(240) for song in range(25) if user % 4 or song < 15]
    lines += [f"u{user}\trare\t1" for user in range(100)]
    (tmp_path / "msd").mkdir()
    with zipfile.ZipFile(tmp_path / "msd" / "train_triplets.txt.zip", "w") as archive:
        archive.writestr("train_triplets.txt", "\n".join(lines))
    monkeypatch.setenv("BAYESDROP_DATA", str(tmp_path))
    # 15 songs were played by all 240 users, 10 by 180 of them, one by 100.
    with pytest.raises(ValueError, match="`min_items` must be what some users have, at most 15; got 20"):
        split_of({"data": "msd", "held_users": 30, "split_seed": 0})
    lines += [f"v{user}\ts{song}\t2" for user in range(100) for song in range(25)]
    with zipfile.ZipFile(tmp_path / "msd" / "train_triplets.txt.zip", "w") as archive:
        archive.writestr("train_triplets.txt", "\n".join(lines))
    split = split_of({"data": "msd", "held_users": 30, "split_seed": 0})
    assert len(split.train.items) == 25
    assert len(split.train.users) == 280 - 60
