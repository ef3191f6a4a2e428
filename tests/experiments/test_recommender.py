"""boluki2020-recommender: claims follow paired differences of users."""

from __future__ import annotations

import numpy as np

from bayesdrop.experiments.boluki2020_recommender.report import make_claims, make_rows


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
    claims = {claim.text.split(" (")[0]: claim for claim in make_claims(found)}
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
