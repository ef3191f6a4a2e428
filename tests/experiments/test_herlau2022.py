"""The experiments of the closed form: their parts are right, and their results bear the paper out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesdrop.data import DataNotFound
from bayesdrop.experiments import PieceCache, herlau2022_amazon, herlau2022_qspr, herlau2022_simulation
from bayesdrop.experiments.record import read_record
from bayesdrop.linear import BayesianDropoutRegression

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("features", [10, 40])
def test_batched_fits_are_the_estimator(features: int) -> None:
    made = herlau2022_simulation.data_sets(np.random.default_rng(0), 3, 20, features)
    X, y, _, _ = made["shift"]
    for f in (0.0, 0.2):
        coef = herlau2022_simulation.batched_fit(X, y, 1 - f, 1e-3 + f * (1 - f) * np.square(X).sum(1))
        for one, rows, targets in zip(coef, X, y, strict=True):
            model = BayesianDropoutRegression(f=f, lambda0=1e-3, fit_intercept=False)
            np.testing.assert_allclose(one[:, 0], model.fit(rows, targets[:, 0]).coef_, rtol=1e-5, atol=1e-8)


def test_the_conditions_are_what_they_say() -> None:
    made = herlau2022_simulation.data_sets(np.random.default_rng(0), 50, 20, 40)
    plain, junk, shift = (made[name] for name in herlau2022_simulation.CONDITIONS)
    assert (plain[0] == junk[0]).all()
    assert (plain[1] == shift[1]).all()
    assert (plain[1] != junk[1]).all()
    # A shift multiplies a column by one number in training and testing.
    ratio = np.concatenate([shift[0] / plain[0], shift[2] / plain[2]], axis=1)
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=1e-6)
    assert np.linalg.matrix_rank(plain[0][0]) == herlau2022_simulation.RANK
    # Columns of L have length 1, so that entries of X have variance 1.
    assert plain[0].var() == pytest.approx(1.0, abs=0.05)


def test_sums_of_pieces_give_the_paired_standard_error(tmp_path: Path) -> None:
    config = herlau2022_simulation.Config(
        num_data_sets=60, piece_size=30, chunk=20, features=(10,), ridge=(1.0,), f=(0.1,)
    )
    cache = PieceCache("herlau2022-simulation", folder=tmp_path)
    outcome = herlau2022_simulation.run(config, cache=cache, progress=False)
    errors = []
    for piece in range(2):
        generator = np.random.default_rng([0, 10, piece])
        for count in (20, 10):
            made = herlau2022_simulation.data_sets(generator, count, 20, 10)["shift"]
            errors.append(herlau2022_simulation.errors_of(*made, config))
    gap = np.concatenate(errors)[:, 0] - np.concatenate(errors)[:, 1]
    row = outcome.row("P = 10, covariate shift", "ridge - dropout, paired")
    assert row.ours == pytest.approx(gap.mean())
    assert row.standard_error == pytest.approx(gap.std(ddof=1) / np.sqrt(60))


def test_the_amino_acids_turn_positive(tmp_path: Path) -> None:
    cache = PieceCache("herlau2022-qspr", folder=tmp_path)
    outcome = herlau2022_qspr.run(herlau2022_qspr.Config(num_points=12), cache=cache, progress=False)
    assert all(row.ours > 0 for row in outcome.rows)
    # On standardised features the paths of ridge and dropout are one, up to the factor.
    f = np.array(outcome.arrays["f"])
    x, y, _ = herlau2022_qspr.standardised()
    ridge = np.linalg.solve(x.T @ x + 19 * f[5] / (1 - f[5]) * np.eye(7), x.T @ y)
    np.testing.assert_allclose(outcome.arrays["dropout"][5], ridge / (1 - f[5]), rtol=1e-8)


def test_reviews_that_are_not_there_are_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(*_: object) -> None:
        raise DataNotFound("The reviews are not available here. Look elsewhere.")

    monkeypatch.setattr(herlau2022_amazon, "reviews", missing)
    cache = PieceCache("herlau2022-amazon", folder=tmp_path)
    outcome = herlau2022_amazon.run(herlau2022_amazon.SMOKE, cache=cache, progress=False)
    assert all(row.ours is None for row in outcome.rows)
    assert {row.note for row in outcome.rows} == {"The reviews are not available here"}
    assert outcome.claims == ()
    herlau2022_amazon.draw(outcome)


def test_the_reviews_are_classified_better_with_dropout(real_data: None) -> None:
    config = herlau2022_amazon.SMOKE
    try:
        piece = herlau2022_amazon.piece(herlau2022_amazon._key(config, "kitchen", "full", 0))
    except DataNotFound as error:
        pytest.skip(str(error).partition(". ")[0])
    ridge, dropout = piece["error"]
    assert piece["error"].shape == (2, 3)
    assert dropout.min() < ridge.min() < 0.25


def test_the_results_bear_the_paper_out() -> None:
    simulation = read_record(RESULTS / "herlau2022-simulation.json").outcome
    assert simulation.complete
    assert all(claim.holds for claim in simulation.claims)
    for features in (10, 20, 40):
        row = simulation.row(f"P = {features}, covariate shift", "ridge - dropout, paired")
        assert row.ours is not None
        assert row.standard_error is not None
        assert row.ours > 10 * row.standard_error
    amazon = read_record(RESULTS / "herlau2022-amazon.json")
    assert amazon.config["repeats"] == 40
    assert all(claim.holds for claim in amazon.outcome.claims)
