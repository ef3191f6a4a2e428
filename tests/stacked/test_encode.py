"""Columns to inputs and outputs back to targets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesdrop.stacked import Encoder, TargetScale, TrainingTable, fit_tables, preset_recipe
from bayesdrop.stacked.prepared import PreparedMixture


def test_the_pieces_of_a_column_add_up_to_its_place_among_the_quantiles() -> None:
    source = np.random.default_rng(0)
    x = np.stack([source.exponential(size=500), source.integers(5, size=500).astype(float)], 1)
    encoder = Encoder.of(x, bins=8)
    assert encoder.edges is not None
    assert encoder.offset is not None
    new = np.stack([source.exponential(2, size=50), source.uniform(-1, 6, size=50)], 1)
    pieces = encoder(new).double().numpy()[:, 2:] + encoder.offset
    for column in range(2):
        edges = encoder.edges[column]
        edges = edges[~np.isnan(edges)]
        expected = np.interp(new[:, column], edges, np.arange(len(edges)))
        np.testing.assert_allclose(pieces[:, 8 * column : 8 * column + 8].sum(1), expected, atol=1e-5)
    # Five values have four intervals between them.
    assert (pieces[:, 8 + 4 :] == 0).all()


def test_inputs_have_mean_zero_over_the_table() -> None:
    x = np.random.default_rng(0).gamma(2, size=(300, 3))
    inputs = Encoder.of(x, bins=5)(x)
    torch.testing.assert_close(inputs.mean(0), torch.zeros(18), rtol=0, atol=1e-5)
    torch.testing.assert_close(inputs[:, :3].std(0, correction=0), torch.ones(3), rtol=1e-5, atol=1e-5)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 9), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_the_width_depends_on_the_shape_alone(rows: int, columns: int, bins: int, kind: int) -> None:
    source = np.random.default_rng(rows)
    x = [np.zeros, np.ones, source.standard_normal, lambda s: source.integers(2, size=s) * 1e9][kind](
        (rows, columns)
    )
    encoder = Encoder.of(x.astype(float), bins)
    inputs = encoder(x.astype(float))
    assert inputs.shape == (rows, encoder.width) == (rows, columns * (1 + bins))
    assert torch.isfinite(inputs).all()


def test_an_encoder_refuses_other_columns() -> None:
    with pytest.raises(ValueError, match=r"of shape \(N, 2\)"):
        Encoder.of(np.ones((3, 2)))(np.ones((3, 4)))
    with pytest.raises(ValueError, match="neither of them 0"):
        Encoder.of(np.ones((0, 2)))


def test_targets_come_back_in_their_units() -> None:
    y = np.random.default_rng(0).normal(50, 7, size=(200, 2))
    scale = TargetScale.of(y)
    back = scale.outputs(scale.standardised(y), heteroscedastic=False)
    np.testing.assert_allclose(back, y, rtol=1e-5)
    both = scale.outputs(torch.zeros(1, 4), heteroscedastic=True)
    np.testing.assert_allclose(both[0, 2:].exp().sqrt(), y.std(0))
    assert TargetScale.of(np.full((4, 1), 3.0)).scale.tolist() == [1.0]


def test_outputs_stay_within_reach_of_the_targets() -> None:
    y = np.array([[0.0, -1.0], [10.0, 1.0], [5.0, 0.0], [5.0, 0.0]])
    scale = TargetScale.of(y)
    for sign, ends in ((1, [20.0, 3.0]), (-1, [-10.0, -3.0])):
        far = scale.outputs(torch.full((1, 4), sign * 1e30), heteroscedastic=True)[0]
        # One range of the targets beyond them; noise of their range at most, and as little as is said.
        np.testing.assert_allclose(far[:2], ends)
        np.testing.assert_allclose(far[2:].exp().sqrt(), [10, 2] if sign > 0 else [0, 0])
        one = scale.outputs(torch.full((1, 2), sign * 1e30), heteroscedastic=False)[0]
        np.testing.assert_allclose(one, ends)
    assert scale.outputs(torch.full((1, 4), math.nan), heteroscedastic=True).isnan().all()
    wider = scale.with_targets(np.array([[30.0, 0.0]]))
    np.testing.assert_allclose(
        wider.outputs(torch.full((1, 2), 1e30), heteroscedastic=False)[0], [60, 3], rtol=1e-12
    )
    # Files of earlier versions do not tell the range of their targets.
    older = TargetScale(scale.mean, scale.scale)
    assert older.outputs(torch.full((1, 2), 1e30), heteroscedastic=False).min() > 1e29


def test_a_network_that_says_nonsense_does_not_move_the_prediction_out_of_reach() -> None:
    source = np.random.default_rng(0)
    x, y = source.normal(size=(60, 2)), source.uniform(2, 3, size=(60, 1))
    recipe = preset_recipe("quick", 60, 2)
    mixture = fit_tables([TrainingTable(x, y)], recipe)[0]
    wild = mixture.components[0].network
    wild.biases[-1].fill_(60.0)
    mean, std = mixture.predict(x).mean, mixture.predict(x).std
    assert mean.max() < 4
    assert std.max() < 3
    torch.testing.assert_close(PreparedMixture(mixture).predict(x).mean, mean)


def test_many_inputs_are_made_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    source = np.random.default_rng(0)
    x = np.stack([source.gamma(2, size=700), source.integers(5, size=700), source.integers(2, size=700)], 1)
    for bins in (1, 4, 16, 300):
        encoder = Encoder.of(x, bins)
        new = np.concatenate([x, 3 * x - 2, source.normal(size=(50, 3)) * 1e5])
        monkeypatch.setattr("bayesdrop.stacked.encode._MANY", len(new) * encoder.width)
        whole = encoder.table_inputs(new)
        assert isinstance(whole, torch.Tensor)
        monkeypatch.setattr("bayesdrop.stacked.encode._MANY", len(new) * encoder.width - 1)
        lazy = encoder.table_inputs(new)
        assert not isinstance(lazy, torch.Tensor)
        assert lazy.x is new  # nothing is held besides the table
        assert lazy.shape == whole.shape
        rows = torch.tensor([5, 0, 5, 1000])
        assert torch.equal(lazy[rows], whole[rows])


def test_networks_learn_the_same_from_inputs_made_when_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = np.random.default_rng(0)
    x = source.normal(size=(120, 3))
    y = x[:, :1] + 0.1 * source.normal(size=(120, 1))
    found = []
    for many in (2**26, 0):
        monkeypatch.setattr("bayesdrop.stacked.encode._MANY", many)
        mixture = fit_tables([TrainingTable(x, y)], preset_recipe("quick", 120, 3))[0]
        found.append(mixture.draws(x))
    assert torch.equal(*found)
