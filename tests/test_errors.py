from __future__ import annotations

import pytest
import torch

from bayesdrop.errors import MissingExtra, must, must_be_finite, require


def test_the_sentence_names_owner_argument_requirement_and_value() -> None:
    sentence = must("NegativeELBO", "num_data", "a positive int", 0, "Pass len(train_set).")
    assert sentence == "NegativeELBO: `num_data` must be a positive int; got 0. Pass len(train_set)."


def test_tensors_are_told_by_shape_and_long_values_cut() -> None:
    assert "a tensor of shape (3, 4)" in must("f", "x", "small", torch.zeros(3, 4))
    assert "tensor(2.0)" in must("f", "x", "small", torch.tensor(2.0))
    assert "an empty tensor" in must("f", "x", "full", torch.zeros(0))
    assert len(must("f", "x", "short", "a" * 1000)) < 300


def test_a_value_that_is_not_finite_is_counted_and_placed() -> None:
    value = torch.zeros(2, 3)
    value[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"f: `x` must be finite; got 1 of 6 .* first at \(1, 2\)"):
        must_be_finite("f", "x", value)
    must_be_finite("f", "x", torch.zeros(2))
    must_be_finite("f", "x", torch.tensor([1, 2]))


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(MissingExtra, match=r"plot\(\) needs nowhere_to_be_found.*pip install '\.\[plot\]'"):
        require("nowhere_to_be_found.part", extra="plot", owner="plot()")
